package main

// commandMutants break rules of the command.
var commandMutants = []section{
	{folder: "cmd/dlock/internal/supervise", tests: "cmd/dlock", alone: true, mutants: []mutant{
		{rule: "a command does not start when the lock was lost",
			at: "starterProcess.become", edit: yes("held.Err() == nil"),
			test: "cmd/dlock/internal/supervise TestLostLockStartsNothing"},
		{rule: "when dlock is killed the guard kills the group",
			at: "runGuard", edit: drop(`g.kill("dlock has ended`), test: "TestKilledDlockTakesTheGroupAlong"},
		{rule: "when dlock is stopped the guard kills the group before the lease ends",
			at: "runGuard", edit: drop(`g.kill("dlock was stopped`),
			test: "TestStoppedDlockDoesNotLetTheGroupOutliveTheLease"},
		{rule: "signals reach the whole group",
			at: "process.kill", edit: swap("-p.group", "p.group"), test: "TestSignalsReachTheWholeGroup"},
		{rule: "the grace is inside the lease",
			at: "SplitTTL", edit: swap("Grace: margin - reserve", "Grace: grace"),
			test: "cmd/dlock/internal/supervise TestSplitTTLFitsTheGraceIntoTheLease"},
	}},
	{folder: "cmd/dlock", tests: "cmd/dlock", alone: true, mutants: []mutant{
		{rule: "a loss that only the release finds is status 76",
			at: "lockRequest.release", edit: no("dlock.ErrLost"), test: "TestLossFoundAtRelease"},
		{rule: "a nested dlock does not wait for itself",
			at: "heldLock.holds", edit: swap("holders[i].Holder.PID == h.pid", "holders[i].Holder.PID != h.pid"),
			test: "TestNestedExec"},
		{rule: "a password of the command line is not in the command's environment",
			at: "storeChoice.handOn", edit: swap("case stores.HasSecret(c.url):", "case !stores.HasSecret(c.url):"),
			test: "TestNoPasswordIsHandedOn"},
	}},
	{folder: "cmd/dlock/internal/stores", tests: "cmd/dlock", alone: true, mutants: []mutant{
		{rule: "a password that an error quotes is hidden",
			at: "Redactor.learn", edit: drop("r.learnUserinfo(rest[:at])"), test: "TestNoPasswordIsShown"},
	}},
}

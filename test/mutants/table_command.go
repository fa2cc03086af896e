package main

// Mutants of the command line.
func init() {
	add(mutant{
		rule: "a stop of the whole service does not end the guard before the group",
		file: "cmd/dlock/internal/supervise/guard_unix.go",
		old:  `signal.Ignore(append(slices.Clone(StopSignals), syscall.SIGPIPE)...)`,
		new:  `signal.Ignore(syscall.SIGPIPE)`,
		test: "cmd/dlock TestGuardSurvivesTheStopOfItsService",
	})
	add(mutant{
		rule: "a guard that was stopped reads what is pending before it kills",
		file: "cmd/dlock/internal/supervise/guard_unix.go",
		old:  `case !pending && g.until <= uptime():`,
		new:  `case g.until <= uptime():`,
		test: "cmd/dlock/internal/supervise TestGuardReadsWhatIsPendingBeforeItDecides",
	})
	add(mutant{
		rule: "a guard that was stopped finds the newest record also if the pipe is full",
		file: "cmd/dlock/internal/supervise/guard_unix.go",
		old:  "\t\tg.discard()\n",
		new:  ``,
		test: "cmd/dlock/internal/supervise TestGuardFindsTheNewestRecordInAFullPipe",
	})
	add(mutant{
		rule: "a guard that was killed is replaced",
		file: "cmd/dlock/internal/supervise/run_unix.go",
		old:  "\t\t\tp.replaceDeadGuard()\n",
		new:  ``,
		test: "cmd/dlock TestKilledGuardIsReplaced",
	})
	add(mutant{
		rule: "a command does not start when the lock was lost",
		file: "cmd/dlock/internal/supervise/starter_unix.go",
		old:  `if held.Err() == nil {`,
		new:  `if true {`,
		test: "cmd/dlock/internal/supervise TestLostLockStartsNothing",
	})
	add(mutant{
		rule: "when dlock is killed the guard kills the group",
		file: "cmd/dlock/internal/supervise/guard_unix.go",
		old:  "\t\t\tg.kill(\"dlock has ended and the command had not\")\n",
		new:  ``,
		test: "cmd/dlock TestKilledDlockTakesTheGroupAlong",
	})
	add(mutant{
		rule: "when dlock is stopped the guard kills the group before the lease ends",
		file: "cmd/dlock/internal/supervise/guard_unix.go",
		old:  "\t\t\tg.kill(\"dlock was stopped or starved until the lease ended\")\n",
		new:  ``,
		test: "cmd/dlock TestStoppedDlockDoesNotLetTheGroupOutliveTheLease",
	})
	add(mutant{
		rule: "the guard says why it kills",
		file: "cmd/dlock/internal/supervise/guard_unix.go",
		old:  `if !g.reported {`,
		new:  `if g.reported {`,
		test: "cmd/dlock TestGuardSaysWhyItKills",
	})
	add(mutant{
		rule: "the command has the caller's descriptors",
		file: "cmd/dlock/internal/supervise/starter_unix.go",
		old:  "\t\t\tFiles: j.Files,\n",
		new:  "\t\t\tFiles: append(j.Files[:3:3], nil, nil),\n",
		test: "cmd/dlock TestCommandInheritsTheDescriptorsOfTheCaller",
	})
	add(mutant{
		rule: "signals reach the whole group",
		file: "cmd/dlock/internal/supervise/run_unix.go",
		old:  `_ = syscall.Kill(-p.group, s)`,
		new:  `_ = syscall.Kill(p.group, s)`,
		test: "cmd/dlock TestSignalsReachTheWholeGroup",
	})
	add(mutant{
		rule: "a signal that is ignored stays so for the command",
		file: "cmd/dlock/internal/supervise/run_unix.go",
		old:  `!notForwarded[number] && !signal.Ignored(number)`,
		new:  `!notForwarded[number]`,
		test: "cmd/dlock TestNoHangupStaysIgnored",
	})
	add(mutant{
		rule: "TERM comes before KILL",
		file: "cmd/dlock/internal/supervise/run_unix.go",
		old:  "\tif left > 0 {\n\t\tp.kill(syscall.SIGTERM)",
		new:  "\tif left < 0 {\n\t\tp.kill(syscall.SIGTERM)",
		test: "cmd/dlock TestTermGivesTimeToCleanUp",
	})
	add(mutant{
		rule: "the grace is inside the lease",
		file: "cmd/dlock/internal/supervise/supervise.go",
		old:  `Grace:  margin - reserve,`,
		new:  `Grace:  grace,`,
		test: "cmd/dlock/internal/supervise TestSplitTTLFitsTheGraceIntoTheLease",
	})
	add(mutant{
		rule: "--min-hold keeps the lock",
		file: "cmd/dlock/exec.go",
		old:  `held.acquired.Add(r.flags.minHold)`,
		new:  `held.acquired`,
		test: "cmd/dlock TestMinHold",
	})
	add(mutant{
		rule: "a loss that only the release finds is status 76",
		file: "cmd/dlock/acquire.go",
		old:  "errors.Is(err, dlock.ErrLost):\n\t\t\t\treturn true",
		new:  "errors.Is(err, dlock.ErrLost):\n\t\t\t\treturn false",
		test: "cmd/dlock TestLossFoundAtRelease",
	})
	add(mutant{
		rule: "-n gives up at once",
		file: "cmd/dlock/acquire.go",
		old:  `if r.flags.noWait || r.flags.limited {`,
		new:  `if r.flags.limited {`,
		test: "cmd/dlock TestExecConflict",
	})
	add(mutant{
		rule: "a signal ends the waiting",
		file: "cmd/dlock/acquire.go",
		old:  `interrupt(interruptedError{signal: s})`,
		new:  `_ = s`,
		test: "cmd/dlock TestInterruptWhileWaiting",
	})
	add(mutant{
		rule: "a store that has never answered does not delay Ctrl-C",
		file: "cmd/dlock/store.go",
		old:  "unansweredLimit = 200 * time.Millisecond",
		new:  "unansweredLimit = 2 * time.Second",
		test: "cmd/dlock TestInterruptWhileConnecting",
	})
	add(mutant{
		rule: "-n does not report a wait",
		file: "cmd/dlock/acquire.go",
		old:  `if !r.flags.quiet && !r.flags.noWait {`,
		new:  `if !r.flags.quiet {`,
		test: "cmd/dlock TestNoWaitReportsNoWaiting",
	})
	add(mutant{
		rule: "the time without an answer counts from the last answer",
		file: "cmd/dlock/internal/stores/reach.go",
		old:  "left = limit - ago",
		new:  "left = 0 * ago",
		test: "cmd/dlock/internal/stores TestNoAnswerCountsFromTheLastAnswer",
	})
	add(mutant{
		rule: "a second signal ends a release that hangs",
		file: "cmd/dlock/acquire.go",
		old:  "late = time.After(answeredLimit)",
		new:  "late = nil",
		test: "test/stores/redis TestSignalEndsHangingRelease",
	})
	add(mutant{
		rule: "the variable of a lock that was released long ago means nothing",
		file: "cmd/dlock/nested.go",
		old:  "case err != nil || i < 0:\n\t\treturn false, err",
		new:  "case err != nil || i < 0:\n\t\treturn sameURL, err",
		test: "cmd/dlock TestNestedExec",
	})
	add(mutant{
		rule: "a nested dlock does not wait for itself",
		file: "cmd/dlock/nested.go",
		old:  `holders[i].Holder.PID == h.pid &&`,
		new:  `holders[i].Holder.PID != h.pid &&`,
		test: "cmd/dlock TestNestedExec",
	})
	add(mutant{
		rule: "the default store is readable by its user only",
		file: "cmd/dlock/internal/stores/sqlite.go",
		old:  `os.O_RDWR|os.O_CREATE, 0o600)`,
		new:  `os.O_RDWR|os.O_CREATE, 0o644)`,
		test: "cmd/dlock TestDefaultStoreNeedsNoSetUp",
	})
	add(mutant{
		rule: "an empty store variable is refused",
		file: "cmd/dlock/store.go",
		old:  `case inEnvironment && variable == "":`,
		new:  `case inEnvironment && variable == "" && urlGiven:`,
		test: "cmd/dlock TestEmptyStoreVariableIsRefused",
	})
	add(mutant{
		rule: "a password of the command line is not in the command's environment",
		file: "cmd/dlock/store.go",
		old:  "\tcase stores.HasSecret(c.url):\n",
		new:  "\tcase !stores.HasSecret(c.url):\n",
		test: "cmd/dlock TestNoPasswordIsHandedOn",
	})
	add(mutant{
		rule: "a nested dlock uses the same store",
		file: "cmd/dlock/store.go",
		old:  `return append(child, storeVariable+"="+shown)`,
		new:  `return environment`,
		test: "cmd/dlock TestNestedExecUsesTheSameStore",
	})
	add(mutant{
		rule: "hold gives the lock back when its parent ends",
		file: "cmd/dlock/hold.go",
		old:  `if os.Getppid() != parent {`,
		new:  `if os.Getppid() < 0 {`,
		test: "cmd/dlock TestHoldUntilItsParentEnds",
	})
	add(mutant{
		rule: "hold gives the lock back when stdin closes",
		file: "cmd/dlock/hold.go",
		old:  "\t\t\tclose(closed)\n\t\t}\n",
		new:  "\t\t}\n",
		test: "cmd/dlock TestHoldUntilStdinCloses",
	})
	add(mutant{
		rule: "--max-hold ends the command",
		file: "cmd/dlock/acquire.go",
		old:  `if r.flags.maxHold > 0 {`,
		new:  `if r.flags.maxHold < 0 {`,
		test: "cmd/dlock TestMaxHold",
	})
	add(mutant{
		rule: "a plain number is seconds",
		file: "cmd/dlock/duration.go",
		old:  `math.Round(seconds * float64(time.Second))`,
		new:  `math.Round(seconds * float64(time.Millisecond))`,
		test: "cmd/dlock TestPlainNumbersAreSeconds",
	})
	add(mutant{
		rule: "a short password is not hidden inside of an address",
		file: "cmd/dlock/internal/stores/redact.go",
		old:  `port := before == ':' && after != '@' && isPort(word)`,
		new:  `port := false`,
		test: "cmd/dlock TestTextsAreNotCut",
	})
	add(mutant{
		rule: "a password that an error quotes is hidden",
		file: "cmd/dlock/internal/stores/redact.go",
		old:  "\t\tr.learnUserinfo(rest[:at])\n",
		new:  ``,
		test: "cmd/dlock TestNoPasswordIsShown",
	})
	add(mutant{
		rule: "break needs a token",
		file: "cmd/dlock/break.go",
		old:  `if !cmd.Flags().Changed("token") {`,
		new:  `if false {`,
		test: "cmd/dlock TestUsageErrors",
	})
}

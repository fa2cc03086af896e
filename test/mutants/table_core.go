package main

// Rules of a caller on its way to a lease and back.
func init() {
	add(mutant{
		rule: "trust counts from when the attempt was sent, not from its answer",
		file: "claim.go",
		old:  "\treturn cl.accept(granted, sent)\n",
		new:  "\tsent = c.clock.Now()\n\treturn cl.accept(granted, sent)\n",
		test: ". TestLateGrantIsRejected",
	})
	add(mutant{
		rule: "a grant that arrives after its trust deadline is rejected",
		file: "claim.go",
		old:  "c.clock.Now() >= sent+granted.TTL-g.Margin",
		new:  "c.clock.Now() >= sent+100*granted.TTL",
		test: ". TestLateGrantIsRejected",
	})
	add(mutant{
		rule: "an attempt of unknown outcome is undone",
		file: "claim.go",
		old:  " || !driver.Unchanged(err)",
		new:  "",
		test: ". TestRefusalDoesNotHideAnUnknownOutcome",
	})
	add(mutant{
		rule: "a place in the store's queue is given up",
		file: "claim.go",
		old:  "queue && placed ||",
		new:  "queue && placed && false ||",
		test: ". TestPassedClaimIsUndone",
	})
	add(mutant{
		rule: "a caller that gives up undoes its attempts",
		file: "bid.go",
		old:  "\tcase b.claim.needsUndo:\n",
		new:  "\tcase false:\n",
		test: ". TestRefusalDoesNotHideAnUnknownOutcome|TestPassedClaimIsUndone",
	})
	add(mutant{
		rule: "what a caller gives up is released by its owner alone",
		file: "bid.go",
		old:  "\tgrant.Token = 0 // the owner alone decides\n",
		new:  "",
		test: ". TestLateGrantOfAnOwnerIsUndone",
	})
	add(mutant{
		rule: "the next caller comes after an abandoned attempt was undone",
		file: "bid.go",
		old:  "\t\t_, err := c.releaseGrant(",
		new:  "\t\tif slot != nil {\n\t\t\tslot.Leave(refused)\n\t\t\tslot = nil\n\t\t}\n\t\t_, err := c.releaseGrant(",
		test: ". TestTryLockBehindACancelledAttemptIsUnreachable|TestOutageIsNotReportedAsHeld",
	})
	add(mutant{
		rule: "ErrHeld is reported only if the lock is known to be held",
		file: "known.go",
		old:  "return o.refusal\n",
		new:  "return cmp.Or(o.refusal, new(driver.HeldError))\n",
		test: ". TestOutageIsNotReportedAsHeld",
	})
	add(mutant{
		rule: "a limit that ends soon after a release is no outage",
		file: "call.go",
		old:  "held = cmp.Or(held, c.client.lastHolder(name, c.settings.mode))",
		new:  "held = cmp.Or(held, nil)",
		test: ". TestLimitDuringAReleaseIsHeld|TestLimitDuringAnAttemptIsHeld|TestLimitBehindARefusalIsHeld",
	})
	add(mutant{
		rule: "the last holder is reported only for a moment after the store has answered last",
		file: "known.go",
		old:  "now-since >= maxHolderAge",
		new:  "now-since >= time.Hour",
		test: ". TestNoAnswerForLongIsNotHeld|TestGivenUpAttemptsDoNotProlongTheHolder",
	})
	add(mutant{
		rule: "a lost holder is not reported",
		file: "known.go",
		old:  "errors.Is(st.cause, ErrLost)",
		new:  "errors.Is(st.cause, ErrDenied)",
		test: ". TestLostLockIsNotHeld",
	})
	add(mutant{
		rule: "a failed attempt makes the last holder unknown",
		file: "wait.go",
		old:  "\t\ta.slot.ForgetPrevious()\n",
		new:  "",
		test: ". TestFailureIsNotHeld",
	})
	add(mutant{
		rule: "callers behind a set learn that the store refused it because of another name",
		file: "lockbatch.go",
		old:  "\tb.noteAnswer()\n\tb.leaveAllBut(one)\n",
		new:  "\tb.leaveAllBut(one)\n",
		test: ". TestCallersBehindLockAllsReportNoOutage",
	})
	add(mutant{
		rule: "a caller with another limit is refused at once",
		file: "enter.go",
		old:  " || v.Occupant.mode.Limit != b.claim.settings.mode.Limit",
		new:  "",
		test: ". TestOtherLimitIsRefusedAtOnceInOneProcess",
	})
	add(mutant{
		rule: "TryLock waits for the outcome of another caller of the process",
		file: "enter.go",
		old:  "\t\tcase <-notice.Done:\n\t\t\to :=",
		new:  "\t\tdefault:\n\t\t\treturn &HeldError{Name: name}\n\t\tcase <-notice.Done:\n\t\t\to :=",
		test: ". TestOutageIsNotReportedAsHeld",
	})
	add(mutant{
		rule: "a caller that queues behind an attempt without an outcome gives up after a RequestTimeout",
		file: "enter.go",
		old:  "\t\tdue = time.After(b.call.timeForAnswer())\n\t}",
		new:  "\t}",
		test: ". TestEveryCallInAnOutageTakesOneRequestTimeout",
	})
	add(mutant{
		rule: "an attempt that waited for the outcome of another has less time",
		file: "call.go",
		old:  "if c.storeHasAnswered || c.answerBy.IsZero() {",
		new:  "if true || c.storeHasAnswered {",
		test: ". TestWaitForAnotherOutcomeShortensTheAttempt",
	})
	add(mutant{
		rule: "an attempt behind one that was rejected has a RequestTimeout of its own",
		file: "wait.go",
		old:  "state.Answered(now) //",
		new:  "//",
		test: ". TestRejectedAttemptsAreNotAnOutage",
	})
	add(mutant{
		rule: "a store that rejects an attempt at the end of its time has answered",
		file: "wait.go",
		old:  "deadline.Passed(a.call.ctx) != nil && !isAnswer(a.call.ctx, err)",
		new:  "deadline.Passed(a.call.ctx) != nil",
		test: ". TestRejectionAtTheEndOfTheTimeIsReported",
	})
	add(mutant{
		rule: "a grant announces its outcome to callers that wait for it",
		file: "bid.go",
		old:  "slot.Announce(",
		new:  "slot.Update(",
		test: ". TestTryLockWaitsForAnotherCallersOutcome",
	})
	add(mutant{
		rule: "a refusal announces its outcome to callers that wait for it",
		file: "wait.go",
		old:  "a.slot.Announce(",
		new:  "a.slot.Update(",
		test: ". TestTryLockWaitsForAWaitersRefusal",
	})
	add(mutant{
		rule: "a caller that leaves its slot announces it",
		file: "internal/localqueue/localqueue.go",
		old:  "\ts.announceLocked()\n\tif t :=",
		new:  "\tif t :=",
		test: ". TestTryLockSucceedsAfterAFailedAttempt",
	})
	add(mutant{
		rule: "callers in a queue learn of an outage from their predecessor",
		file: "enter.go",
		old:  "b.call.settings.ttl); err != nil {",
		new:  "b.call.settings.ttl); err != nil && false {",
		test: ". TestRepeatedLocksInAnOutageAreBounded|TestQueueLearnsOfAnOutageTogether",
	})
	add(mutant{
		rule: "a watching waiter polls a few times in a TTL",
		file: "claim.go",
		old:  "backoff.Jitter(min(max(cl.settings.ttl/3, minWatchedSleep), maxSleep))",
		new:  "5 * time.Minute",
		test: ". TestWatchingWaiterNoticesAnOutage",
	})
	add(mutant{
		rule: "a watching waiter does not poll more than once in a second",
		file: "claim.go",
		old:  "max(cl.settings.ttl/3, minWatchedSleep)",
		new:  "cl.settings.ttl/3",
		test: ". TestWatchingWaiterPollsSeldom",
	})
	add(mutant{
		rule: "a waiter tries again after it has subscribed",
		file: "wait.go",
		old:  "\treturn true, nil\n}",
		new:  "\treturn false, a.sleep(cl.watchDelay())\n}",
		test: ". TestReleaseBeforeTheSubscriptionIsNotMissed",
	})
	add(mutant{
		rule: "a caller that does not wait pauses at the end of a time slice",
		file: "wait.go",
		old:  "\tif short && pause",
		new:  "\tif short {\n\t\treturn 0\n\t}\n\tif short && pause",
		test: ". TestTryLockInALoopLetsOthersIn",
	})
	add(mutant{
		rule: "the pause of a caller that does not wait is short",
		file: "wait.go",
		old:  "if short && pause > maxShortPause {",
		new:  "if short && pause > time.Hour {",
		test: ". TestPauseOfAShortWaitIsShort",
	})
	add(mutant{
		rule: "the pause of a caller with a limit below it is short",
		file: "wait.go",
		old:  "short := !s.waits() || s.wait > 0 && !a.call.isWaiter && s.wait < pause",
		new:  "short := !s.waits()",
		test: ". TestPauseOfAShortWaitIsShort",
	})
	add(mutant{
		rule: "the pause of a caller whose context ends before it is short",
		file: "wait.go",
		old:  "time.Until(ends) < pause",
		new:  "time.Until(ends) < 0",
		test: ". TestPauseOfACallerWithADeadlineIsShort",
	})
	add(mutant{
		rule: "a caller that gives up during a pause leaves its outcome to the next one",
		file: "internal/contention/contention.go",
		old:  " && s.resumes <= now",
		new:  "",
		test: "internal/contention TestOutcomeOfAPauseOfTwoCallers",
	})
	add(mutant{
		rule: "a caller behind one that pauses waits for no answer of the store",
		file: "wait.go",
		old:  "o.pausing, o.asked = pausing, now",
		new:  "o.pausing, o.asked = pausing && false, now",
		test: ". TestWaitBehindAPauseReportsNoOutage",
	})
	add(mutant{
		rule: "a panic in a hook releases the lock",
		file: "lock.go",
		old:  "\t\t\tb.unlock()\n",
		new:  "\t\t\t_ = b\n",
		test: ". TestPanickingHookReleasesTheLock",
	})
	add(mutant{
		rule: "a panic in a hook releases every lock of a set",
		file: "lockall.go",
		old:  "\t\t\tunlockAll(bids)\n\t\t\t_ = set",
		new:  "\t\t\t_ = set",
		test: ". TestPanickingHookReleasesTheLock",
	})
}

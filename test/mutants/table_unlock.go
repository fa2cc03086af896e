package main

// Rules of Unlock, contexts, re-entry and sets of names.
func init() {
	add(mutant{
		rule: "Unlock says that Close gave the lock away",
		file: "unlock.go",
		old:  "\tcase errors.Is(cause, ErrClosed):\n",
		new:  "\tcase false:\n",
		test: ". TestCloseDuringDoIsReported",
	})
	add(mutant{
		rule: "the wait for a renewal counts for the limit of Unlock",
		file: "release.go",
		old:  "until = max(until, c.clock.NoLaterThanNow()+c.requestTimeout)",
		new:  "until = c.clock.NoLaterThanNow() + 2*c.requestTimeout",
		test: ". TestUnlockDuringARenewalIsBounded",
	})
	add(mutant{
		rule: "a second release that finds nothing is no success after the lease ran out",
		file: "release.go",
		old:  "attempts > 1 && c.clock.Now() < g.TrustDeadline()",
		new:  "attempts > 1",
		test: ". TestSecondReleaseAfterExpiryReportsTheLoss",
	})
	add(mutant{
		rule: "a second release that finds nothing within the lease is a success",
		file: "release.go",
		old:  "attempts > 1 && c.clock.Now() < g.TrustDeadline()",
		new:  "attempts < 0",
		test: ". TestUnlockSucceedsAfterALostReply",
	})
	add(mutant{
		rule: "a release works although its context is cancelled",
		file: "release.go",
		old:  "\t\tctx = context.WithoutCancel(ctx)\n",
		new:  "",
		test: ". TestLeaseOutlivesTheContextOfLock|TestUnlockWorksWithACancelledContext",
	})
	add(mutant{
		rule: "the renewal has ended before the release is sent",
		file: "release.go",
		old:  "\t\tcase <-renewal:\n",
		new:  "\t\tdefault:\n",
		test: ". TestRenewalEndsBeforeTheRelease",
	})
	add(mutant{
		rule: "a release in the background goes on until the lock expires",
		file: "release.go",
		old:  "g.Grant, g.Expiry(), err",
		new:  "g.Grant, g.TrustDeadline(), err",
		test: ". TestUnlockGoesOnDuringTheMargin",
	})
	add(mutant{
		rule: "Unlock of a lost lock releases it",
		file: "unlock.go",
		old:  "\t\tt.releaseLost()\n\t\treturn",
		new:  "\t\treturn",
		test: ". TestBrokenLockIsReleased",
	})
	add(mutant{
		rule: "a second Unlock waits for the first",
		file: "internal/once/once.go",
		old:  "\t\t\t<-wait\n",
		new:  "\t\t\t_ = wait\n",
		test: ". TestConcurrentUnlockInABubble",
	})
	add(mutant{
		rule: "callers that wait for an Unlock wait at a channel",
		file: "internal/once/once.go",
		old:  "begun):\n\t\tdefer o.end() //",
		new:  "done):\n\t\to.mu.Lock()\n\t\tdefer o.mu.Unlock() //",
		test: "internal/once TestOnceHoldsNoLockMeanwhile",
	})
	add(mutant{
		rule: "a panic in a hook ends an Unlock",
		file: "internal/once/once.go",
		old:  "\t\tdefer o.end() // also if f panics, in a hook\n\t\tf()\n",
		new:  "\t\tf()\n\t\to.end()\n",
		test: ". TestUnlockAfterAPanicReturns",
	})
	add(mutant{
		rule: "the last lease of a tenure unlocks it, not the first",
		file: "unlock.go",
		old:  "l.last = t.entries == 0",
		new:  "l.last = true",
		test: ". TestReentryCounts",
	})
	add(mutant{
		rule: "a context of an unlocked lease does not re-enter a grant that was handed over",
		file: "tenure.go",
		old:  "\tif t.stage == unlocked {\n",
		new:  "\tif false {\n",
		test: ". TestStaleContextDoesNotReenter",
	})
	add(mutant{
		rule: "a context of an unlocked lease locks anew",
		file: "reentry.go",
		old:  " && !t.wasUnlocked()",
		new:  "",
		test: ". TestUnlockedLockIsNotReentered",
	})
	add(mutant{
		rule: "a lost lock is not re-entered as if nothing had happened",
		file: "reentry.go",
		old:  "(t.entries == 0 || !errors.Is(cause, ErrLost))",
		new:  "(errors.Is(cause, ErrLost) || true)",
		test: ". TestReentryOfALostLockFails",
	})
	add(mutant{
		rule: "a lost lock that was unlocked can be locked again",
		file: "reentry.go",
		old:  "(t.entries == 0 || !errors.Is(cause, ErrLost))",
		new:  "!errors.Is(cause, ErrLost)",
		test: ". TestContextOfAnUnlockedLostLockLocksAnew",
	})
	add(mutant{
		rule: "a re-entry checks the clock",
		file: "reentry.go",
		old:  "\tg.expireIfOverdue()\n",
		new:  "",
		test: ". TestReentryChecksTheClock",
	})
	add(mutant{
		rule: "the loss of the lock ends the context of a re-entry",
		file: "context.go",
		old:  "c.stops = append(c.stops, its.Follow(c.ending))",
		new:  "_ = its",
		test: ". TestLossEndsAReentry",
	})
	add(mutant{
		rule: "the contexts that follow a lease end with it, not a moment later",
		file: "internal/ending/ending.go",
		old:  "\t\tfollower.End(cause)\n\t}\n}",
		new:  "\t\tgo follower.End(cause)\n\t}\n}",
		test: ". TestFollowingContextsEndAtOnce",
	})
	add(mutant{
		rule: "a context checks the clock before it says that the lock is held",
		file: "context.go",
		old:  "\t\tc.tenure.grant.expireIfOverdue()\n",
		new:  "",
		test: ". TestContextChecksTheClock",
	})
	add(mutant{
		rule: "a context ends with its tenure, also if that has not ended it yet",
		file: "context.go",
		old:  "\t\t\tc.tenure.endContext(cause)\n",
		new:  "\t\t\t_ = cause\n",
		test: ". TestErrReportsAnEndedHoldAtOnce",
	})
	add(mutant{
		rule: "the context of Do checks the clock for the lease around it",
		file: "context.go",
		old:  "\t\t_ = c.caller.Err() //",
		new:  "\t\t//",
		test: ". TestContextOfDoChecksTheClockForTheDoAroundIt",
	})
	add(mutant{
		rule: "the context of a re-entry does not stay with the outer lease",
		file: "context.go",
		old:  "\tc.unfollow()\n",
		new:  "",
		test: ". TestLockAllContextIsFreed",
	})
	add(mutant{
		rule: "a set that cannot be had whole leaves nothing",
		file: "lockall.go",
		old:  "\t\t\tunlockAll(bids[:i])\n",
		new:  "",
		test: ". TestLockAllIsAllOrNone",
	})
	add(mutant{
		rule: "a set is acquired in one order, whatever the order given",
		file: "lockall.go",
		old:  "\tslices.Sort(names)\n",
		new:  "",
		test: ". TestLockAllDoesNotDeadlock",
	})
	add(mutant{
		rule: "a set whose name is lost while it waits for another one fails at once",
		file: "lockall.go",
		old:  "\t\t\tdefer end.Follow(losses)()\n",
		new:  "\t\t\t_, _ = end, losses\n",
		test: ". TestLockAllGivesUpAfterALoss",
	})
	add(mutant{
		rule: "a set of which a name was lost is not returned",
		file: "lockall.go",
		old:  "\tif err := lossAmong(bids); err != nil {",
		new:  "\tif err := lossAmong(bids[:0]); err != nil {",
		test: ". TestSetThatLostANameIsNotReturned",
	})
	add(mutant{
		rule: "a set that waits for one name occupies no other slot",
		file: "lockbatch.go",
		old:  "\tb.leaveAllBut(one)\n",
		new:  "",
		test: ". TestLockAllKeepsNothingWhileItWaits",
	})
	add(mutant{
		rule: "a set of many names is not acquired in one step",
		file: "lockall.go",
		old:  "len(names) > maxNamesInOneStep",
		new:  "len(names) < 0",
		test: ". TestLockAllRefusesTooManyNames",
	})
	add(mutant{
		rule: "a set has one subscription, to the name that blocks it",
		file: "lockbatch.go",
		old:  "\t\t\tb.subscribedTo.claim.unsubscribe()\n",
		new:  "",
		test: ". TestSubscriptionsEnd",
	})
	add(mutant{
		rule: "a set does not spin if a different name blocks it each time",
		file: "lockbatch.go",
		old:  "if subscribed && b.triedAtOnce {",
		new:  "if subscribed && b.triedAtOnce && one == nil {",
		test: ". TestLockAllDoesNotSpin",
	})
	add(mutant{
		rule: "a set that waits reserves no name",
		file: "lockbatch.go",
		old:  "reqs[i].Queue && c.traits.Queues",
		new:  "reqs[i].Queue",
		test: ". TestLockAllReservesNoName",
	})
}

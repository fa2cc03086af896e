package main

func init() {
	add(mutant{
		rule: "trust counts from when the acquisition was sent, not from its answer",
		file: "acquire.go",
		old:  "	return sent, h.accept(grant, grant.Token, sent)\n",
		new:  "	sent = c.clock.Now()\n	return sent, h.accept(grant, grant.Token, sent)\n",
		test: ". TestLateGrantIsRejected",
	})
	add(mutant{
		rule: "a lock that expired during the hand-over is rejected",
		file: "acquire.go",
		old:  "c.traits.Local && !h.wasHandedOver()",
		new:  "c.traits.Local || h.wasHandedOver()",
		test: ". TestHandOverThatTookTooLongIsRejected",
	})
	add(mutant{
		rule: "a grant that arrives after its trust deadline is rejected",
		file: "acquire.go",
		old:  "c.clock.Now() >= sent+grant.TTL-h.Margin",
		new:  "c.clock.Now() >= sent+100*grant.TTL",
		test: ". TestLateGrantIsRejected",
	})
	add(mutant{
		rule: "a loss reported before the grant is taken ends the attempt",
		file: "acquire.go",
		old:  `	return h.revocation.err()`,
		new:  `	return nil`,
		test: ". TestGrantRevokedBeforeTheLeaseStarts",
	})
	add(mutant{
		rule: "a loss reported between the grant and the start of the lease ends the attempt",
		file: "loss.go",
		old:  `	if r.reported {`,
		new:  `	if false {`,
		test: ". TestGrantRevokedBeforeTheLeaseStarts",
	})
	add(mutant{
		rule: "a loss reported for an earlier attempt ends nothing",
		file: "hold.go",
		old:  `		h.revocation = new(revocation)`,
		new:  "		if h.revocation == nil {\n			h.revocation = new(revocation)\n		}",
		test: ". TestReportedLossOfAnEarlierAttemptIsIgnored",
	})
	add(mutant{
		rule: "an attempt of unknown outcome is undone",
		file: "acquire.go",
		old:  "	if queue && placed || !driver.Unchanged(err) {\n		h.needsUndo = true\n	}\n",
		new:  "	_ = placed\n",
		test: ". TestRefusalDoesNotHideAnUnknownOutcome",
	})
	add(mutant{
		rule: "the next caller comes after an abandoned attempt was undone",
		file: "acquire.go",
		old:  "	c.cleanups.Go(func() {\n		slot := h.slot.Load()\n",
		new:  "	c.cleanups.Go(func() {\n		slot := h.slot.Load()\n		h.leaveSlot()\n",
		test: ". TestTryLockBehindACancelledAttemptIsUnreachable|TestOutageIsNotReportedAsHeld",
	})
	add(mutant{
		rule: "ErrHeld is reported only if the lock is known to be held",
		file: "heldby.go",
		old:  "	return h.refusal.Load()\n}",
		new:  "	if held := h.refusal.Load(); held != nil {\n		return held\n	}\n	return &driver.HeldError{Name: h.name, Holder: h.holder()}\n}",
		test: ". TestOutageIsNotReportedAsHeld",
	})
	add(mutant{
		rule: "a limit that ends soon after a release is no outage",
		file: "wait.go",
		old:  "held = cmp.Or(held, h.refusal.Load(), h.lastHolder())",
		new:  "held = cmp.Or(held, h.refusal.Load())",
		test: ". TestLimitDuringAReleaseIsHeld|TestLimitDuringAnAttemptIsHeld|TestLimitBehindARefusalIsHeld",
	})
	add(mutant{
		rule: "the last holder is reported only for a moment after the store has answered last",
		file: "heldby.go",
		old:  "h.client.clock.Now()-since >= maxHolderAge",
		new:  "h.client.clock.Now()-since >= time.Hour",
		test: ". TestNoAnswerForLongIsNotHeld|TestGivenUpAttemptsDoNotProlongTheHolder",
	})
	add(mutant{
		rule: "a lost holder is not reported",
		file: "heldby.go",
		old:  " || errors.Is(cause, ErrLost):\n",
		new:  " || cause == nil && false:\n",
		test: ". TestLostLockIsNotHeld",
	})
	add(mutant{
		rule: "a failed attempt makes the last holder unknown",
		file: "wait.go",
		old:  "		slot.ForgetPrevious()\n",
		new:  "		_ = slot\n",
		test: ". TestFailureIsNotHeld",
	})
	add(mutant{
		rule: "a shared caller behind a semaphore is refused",
		file: "groupwait.go",
		old:  "		if blocked != nil && held == nil {\n",
		new:  "		if blocked != nil && held == nil && false {\n",
		test: ". TestSharedCallerBehindASemaphoreIsRefusedAtOnce",
	})
	add(mutant{
		rule: "TryLock waits for the outcome of another caller of the process",
		file: "enter.go",
		old:  "	case <-announced:\n		if err",
		new:  "	default:\n		_ = announced\n		return &HeldError{Name: h.name}\n		if err",
		test: ". TestOutageIsNotReportedAsHeld",
	})
	add(mutant{
		rule: "a caller that queues behind an attempt without an outcome gives up after a RequestTimeout",
		file: "enter.go",
		old:  "				cancel(errNoOutcome)\n",
		new:  "",
		test: ". TestEveryCallInAnOutageTakesOneRequestTimeout",
	})
	add(mutant{
		rule: "an attempt that waited for the outcome of another has less time",
		file: "wait.go",
		old:  "if lc.storeHasAnswered || lc.answerBy.IsZero() {",
		new:  "if true || lc.storeHasAnswered {",
		test: ". TestWaitForAnotherOutcomeShortensTheAttempt",
	})
	add(mutant{
		rule: "an attempt behind one that was rejected has a RequestTimeout of its own",
		file: "wait.go",
		old:  "		state.Answered(now) // the callers behind have a RequestTimeout of their own\n",
		new:  "",
		test: ". TestRejectedAttemptsAreNotAnOutage",
	})
	add(mutant{
		rule: "a store that rejects an attempt at the end of its time has answered",
		file: "wait.go",
		old:  "deadline.Passed(lc.ctx) != nil && !isAnswer(lc.ctx, err)",
		new:  "deadline.Passed(lc.ctx) != nil",
		test: ". TestRejectionAtTheEndOfTheTimeIsReported",
	})
	add(mutant{
		rule: "the wait for a renewal counts for the limit of Unlock",
		file: "unlock.go",
		old:  "until = max(until, c.clock.NoLaterThanNow()+c.requestTimeout)",
		new:  "until = c.clock.NoLaterThanNow() + 2*c.requestTimeout",
		test: ". TestUnlockDuringARenewalIsBounded",
	})
	add(mutant{
		rule: "a grant announces its outcome to callers that wait for it",
		file: "acquire.go",
		old:  "	h.outcome.announce()\n",
		new:  "",
		test: ". TestTryLockWaitsForAnotherCallersOutcome",
	})
	add(mutant{
		rule: "a refusal announces its outcome to callers that wait for it",
		file: "wait.go",
		old:  "	h.outcome.announce()\n",
		new:  "",
		test: ". TestTryLockWaitsForAWaitersRefusal",
	})
	add(mutant{
		rule: "a caller that leaves its slot announces it",
		file: "enter.go",
		old:  "		h.outcome.announce()\n",
		new:  "",
		test: ". TestTryLockSucceedsAfterAFailedAttempt",
	})
	add(mutant{
		rule: "callers in a queue learn of an outage from their predecessor",
		file: "enter.go",
		old:  "	if err := slot.State.OutageTooLong(lc.client.clock.NoLaterThanNow(), lc.settings.ttl); err != nil {\n",
		new:  "	if err := slot.State.OutageTooLong(lc.client.clock.NoLaterThanNow(), lc.settings.ttl); err != nil && false {\n",
		test: ". TestRepeatedLocksInAnOutageAreBounded|TestQueueLearnsOfAnOutageTogether",
	})
	add(mutant{
		rule: "a watching waiter polls a few times in a TTL",
		file: "wait.go",
		old:  "backoff.Jitter(min(max(lc.settings.ttl/3, minWatchedSleep), maxSleep))",
		new:  "5 * time.Minute",
		test: ". TestWatchingWaiterNoticesAnOutage",
	})
	add(mutant{
		rule: "a watching waiter does not poll more than once in a second",
		file: "wait.go",
		old:  "max(lc.settings.ttl/3, minWatchedSleep)",
		new:  "lc.settings.ttl/3",
		test: ". TestWatchingWaiterPollsSeldom",
	})
	add(mutant{
		rule: "a waiter tries again after it has subscribed",
		file: "wait.go",
		old:  "	return true, nil\n",
		new:  "	return false, lc.sleep(h, lc.watchDelay(h, refusal))\n",
		test: ". TestReleaseBeforeTheSubscriptionIsNotMissed",
	})
	add(mutant{
		rule: "a panic in a hook releases the lock",
		file: "lock.go",
		old:  "			unlockAcquired(h)\n",
		new:  "			_ = h\n",
		test: ". TestPanickingHookReleasesTheLock",
	})
	add(mutant{
		rule: "a panic in a hook releases every lock of a set",
		file: "lockall.go",
		old:  "		if panics { // in a hook\n			unlockAcquired(holds...)\n",
		new:  "		if panics { // in a hook\n",
		test: ". TestPanickingHookReleasesTheLock",
	})
	add(mutant{
		rule: "Unlock says that Close gave the lock away",
		file: "unlock.go",
		old:  "	case errors.Is(cause, ErrClosed):\n",
		new:  "	case false:\n",
		test: ". TestCloseDuringDoIsReported",
	})
	add(mutant{
		rule: "a second release that finds nothing is no success after the lease ran out",
		file: "unlock.go",
		old:  "attempts > 1 && c.clock.Now() < h.TrustDeadline()",
		new:  "attempts > 1",
		test: ". TestSecondReleaseAfterExpiryReportsTheLoss",
	})
	add(mutant{
		rule: "a second release that finds nothing within the lease is a success",
		file: "unlock.go",
		old:  "attempts > 1 && c.clock.Now() < h.TrustDeadline()",
		new:  "attempts < 0",
		test: ". TestUnlockSucceedsAfterALostReply",
	})
	add(mutant{
		rule: "a release works although its context is cancelled",
		file: "unlock.go",
		old:  "		ctx = context.WithoutCancel(ctx)\n",
		new:  "",
		test: ". TestLeaseOutlivesTheContextOfLock|TestUnlockWorksWithACancelledContext",
	})
	add(mutant{
		rule: "the renewal has ended before the release is sent",
		file: "unlock.go",
		old:  "		case <-renewal:\n",
		new:  "		default:\n",
		test: ". TestRenewalEndsBeforeTheRelease",
	})
	add(mutant{
		rule: "the last lease of a hold unlocks it, not the first",
		file: "unlock.go",
		old:  "last = h.leases == 0",
		new:  "last = true",
		test: ". TestReentryCounts",
	})
	add(mutant{
		rule: "a lost lock is not re-entered as if nothing had happened",
		file: "reentry.go",
		old:  "(h.leases == 0 || !errors.Is(cause, ErrLost))",
		new:  "(errors.Is(cause, ErrLost) || true)",
		test: ". TestReentryOfALostLockFails",
	})
	add(mutant{
		rule: "a lost lock that was unlocked can be locked again",
		file: "reentry.go",
		old:  "(h.leases == 0 || !errors.Is(cause, ErrLost))",
		new:  "!errors.Is(cause, ErrLost)",
		test: ". TestContextOfAnUnlockedLostLockLocksAnew",
	})
	add(mutant{
		rule: "a re-entry checks the clock",
		file: "reentry.go",
		old:  "	h.expireIfOverdue()\n",
		new:  "",
		test: ". TestReentryChecksTheClock",
	})
	add(mutant{
		rule: "the loss of the lock ends the context of a re-entry",
		file: "reentry.go",
		old:  "		r.stop = context.AfterFunc(held, func() { cancel(context.Cause(held)) })\n",
		new:  "		r.stop = func() bool { return true }\n",
		test: ". TestLossEndsAReentry",
	})
	add(mutant{
		rule: "a context checks the clock before it says that the lock is held",
		file: "context.go",
		old:  "		c.hold.expireIfOverdue()\n",
		new:  "",
		test: ". TestContextChecksTheClock",
	})
	add(mutant{
		rule: "every lease of a hand-over has a token of its own",
		file: "handover.go",
		old:  `h.token + 1, h.lastSent()`,
		new:  `h.token, h.lastSent()`,
		test: ". TestHandOverAsksNothing",
	})
	add(mutant{
		rule: "a hand-over uses no token that was not granted",
		file: "handover.go",
		old:  `h.usedTokens() >= c.traits.TokenStep`,
		new:  `h.usedTokens() > c.traits.TokenStep`,
		test: ". TestHandOverEndsWithTheStep",
	})
	add(mutant{
		rule: "a lock is not handed over to a caller with another TTL",
		file: "options.go",
		old:  `s.ttl == other.ttl && `,
		new:  ``,
		test: ". TestHandOverNeedsEqualTerms",
	})
	add(mutant{
		rule: "a lock is not handed over to a caller with another margin",
		file: "options.go",
		old:  ` && s.margin == other.margin`,
		new:  ``,
		test: ". TestHandOverNeedsEqualTerms",
	})
	add(mutant{
		rule: "a lease of fixed length is not handed over",
		file: "options.go",
		old:  `!s.fixed && `,
		new:  ``,
		test: ". TestHandOverNeedsEqualTerms",
	})
	add(mutant{
		rule: "a lock is not handed over as a lease of fixed length",
		file: "options.go",
		old:  ` && !other.fixed`,
		new:  ``,
		test: ". TestHandOverNeedsEqualTerms",
	})
	add(mutant{
		rule: "a lease whose renewals fail is not handed over",
		file: "handover.go",
		old:  `h.TrustDeadline()-now < h.Grant.TTL/2 || `,
		new:  ``,
		test: ". TestLeaseThatIsNotRenewedIsNotHandedOver",
	})
	add(mutant{
		rule: "a loss ends the lease that has the lock after hand-overs",
		file: "acquire.go",
		old:  `h.revocation, h.takenAt = lock.revocation, lock.takenAt`,
		new:  `h.takenAt = lock.takenAt`,
		test: ". TestHandedOverLockIsLost",
	})
	add(mutant{
		rule: "a lock is not handed over to a set of names",
		file: "handover.go",
		old:  `if !next.acceptsHandOver || `,
		new:  `if `,
		test: ". TestNoHandOverToLockAll",
	})
	add(mutant{
		rule: "a set that cannot be had whole leaves nothing",
		file: "lockall.go",
		old:  "			unlockAcquired(holds[:i]...)\n",
		new:  "",
		test: ". TestLockAll",
	})
	add(mutant{
		rule: "a set is acquired in one order, whatever the order given",
		file: "lockall.go",
		old:  "	slices.Sort(names)\n",
		new:  "",
		test: ". TestLockAll",
	})
	add(mutant{
		rule: "a set that waits for one name occupies no other slot",
		file: "lockbatch.go",
		old:  "	b.leaveAllBut(h)\n",
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
		rule: "a set subscribes to the name that blocks it",
		file: "lockbatch.go",
		old:  "	if h != b.subscribedTo {\n		b.unsubscribe()\n",
		new:  "	if h != b.subscribedTo {\n",
		test: ". TestLockAllIsNotifiedOfTheNameThatBlocks",
	})
	add(mutant{
		rule: "a set does not spin if a different name blocks it each time",
		file: "lockbatch.go",
		old:  "if subscribed && b.triedAtOnce {",
		new:  "if subscribed && b.triedAtOnce && h == nil {",
		test: ". TestLockAllDoesNotSpin",
	})
}

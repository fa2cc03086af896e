package main

// Rules of grants and tenures.
func init() {
	add(mutant{
		rule: "a grant that has ended has no new tenure",
		file: "grant.go",
		old:  "g.cause != nil || g.revocation",
		new:  "g.revocation",
		test: ". TestEndedGrantHasNoNewTenure",
	})
	add(mutant{
		rule: "a grant that was revoked while it was asked for has no tenure",
		file: "grant.go",
		old:  "g.revocation.reported || ",
		new:  "",
		test: ". TestGrantRevokedBeforeTheLeaseStarts",
	})
	add(mutant{
		rule: "a revocation of a grant that is asked for is only noted",
		file: "loss.go",
		old:  "held := g.tenures != nil",
		new:  "held := true",
		test: ". TestGrantRevokedBeforeTheLeaseStarts",
	})
	add(mutant{
		rule: "a revocation of an earlier attempt ends nothing",
		file: "loss.go",
		old:  "last := g.revocation.attempt == attempt",
		new:  "last := g.revocation.attempt >= attempt",
		test: ". TestReportedLossOfAnEarlierAttemptIsIgnored",
	})
	add(mutant{
		rule: "an attempt after one that was revoked is not revoked",
		file: "loss.go",
		old:  "g.revocation = revocation{attempt: attempt}",
		new:  "g.revocation.attempt = attempt",
		test: ". TestGrantRevokedBeforeTheLeaseStarts",
	})
	add(mutant{
		rule: "a revocation ends the lease that has the lock after hand-overs",
		file: "loss.go",
		old:  "if last && held {",
		new:  "if false && held {",
		test: ". TestHandedOverLockIsLost",
	})
	add(mutant{
		rule: "an attempt after a grant that has ended has a new owner",
		file: "bid.go",
		old:  "\t\t\tb.claim.startAnew()\n",
		new:  "",
		test: ". TestEndedGrantHasNoNewTenure",
	})
	add(mutant{
		rule: "a grant is watched before its lease begins, so that nothing watches a revoked one",
		file: "bid.go",
		old:  "\tc.watchdog.Watch(&g.Hold, sent)\n",
		new:  "\tdefer c.watchdog.Watch(&g.Hold, sent)\n",
		test: ". TestGrantRevokedBeforeTheLeaseStarts",
	})
	add(mutant{
		rule: "a grant begins and is announced in one step: it may end at once",
		file: "bid.go",
		old:  "\t\tslot.Announce(func(o *occupant) { // in one step: the grant may end at once\n\t\t\tif began = g.attach(t, slot); began {\n",
		new:  "\t\tbegan = g.attach(t, slot)\n\t\tslot.Announce(func(o *occupant) {\n\t\t\tif began {\n",
		test: ". TestGrantBeginsWithItsSlot",
	})
	add(mutant{
		rule: "a grant ends once",
		file: "grant.go",
		old:  "\tif g.cause != nil {\n",
		new:  "\tif false {\n",
		test: ". TestGrantEndsOnce",
	})
	add(mutant{
		rule: "a loss leaves the slot to the next caller",
		file: "loss.go",
		old:  "\t\tg.slot.Leave(true)\n",
		new:  "",
		test: ". TestGrantEndsOnce",
	})
	add(mutant{
		rule: "an idle grant that is lost or closed is released by the caller that unlocked it, once, before its slot is left",
		file: "grant.go",
		old:  "return len(ended) > 0",
		new:  "return true",
		test: ". TestIdleGrantHasOneOwner",
	})
	add(mutant{
		rule: "an idle grant is released after a loss",
		file: "pass.go",
		old:  "\tg.end(ErrReleased) // unless it was lost or closed meanwhile\n",
		new:  "\tif !g.end(ErrReleased) && g.status().cause != ErrReleased {\n\t\treturn nil\n\t}\n",
		test: ". TestIdleGrantHasOneOwner",
	})
	add(mutant{
		rule: "a call that does not return its lease gives the lock back",
		file: "unlock.go",
		old:  "\t\t_ = g.handOverOrRelease(context.Background()) // the lock expires anyway\n",
		new:  "",
		test: ". TestDeliverIsAllOrNone|TestHooksBalanceWhenCloseMeetsALock$",
	})
	add(mutant{
		rule: "a call whose grant was lost before it returned releases it",
		file: "unlock.go",
		old:  "\t\tt.releaseLost()\n\t}",
		new:  "\t}",
		test: ". TestLostGrantOfACallIsReleased",
	})
	add(mutant{
		rule: "every lease of a grant has a token of its own",
		file: "grant.go",
		old:  "g.Grant.Token+uint64(g.used), 1",
		new:  "g.Grant.Token, 1",
		test: ". TestHandOverAsksNothing",
	})
	add(mutant{
		rule: "a hand-over uses no token that was not granted",
		file: "grant.go",
		old:  "uint64(g.used) >= g.client.traits.TokenStep",
		new:  "uint64(g.used) > g.client.traits.TokenStep",
		test: ". TestHandOverEndsWithTheStep",
	})
	add(mutant{
		rule: "shared callers have tokens of their grant only",
		file: "grant.go",
		old:  " || uint64(g.used) >= g.client.traits.TokenStep",
		new:  "",
		test: ". TestMembersHaveTokensOfTheGrant",
	})
	add(mutant{
		rule: "a lock is not handed over to a caller with another TTL",
		file: "options.go",
		old:  "s.ttl == other.ttl && ",
		new:  "",
		test: ". TestHandOverNeedsEqualTerms",
	})
	add(mutant{
		rule: "a lock is not handed over to a caller with another margin",
		file: "options.go",
		old:  " && s.margin == other.margin",
		new:  "",
		test: ". TestHandOverNeedsEqualTerms",
	})
	add(mutant{
		rule: "a lease of fixed length is not shared",
		file: "options.go",
		old:  "!s.fixed && ",
		new:  "",
		test: ". TestFixedLeaseIsNotShared",
	})
	add(mutant{
		rule: "a lock is not handed over as a lease of fixed length",
		file: "options.go",
		old:  " && !other.fixed",
		new:  "",
		test: ". TestHandOverNeedsEqualTerms",
	})
	add(mutant{
		rule: "a lease whose renewals fail is not handed over",
		file: "pass.go",
		old:  "if g.TrustDeadline()-now < g.Grant.TTL/2 {",
		new:  "if false {",
		test: ". TestLeaseThatIsNotRenewedIsNotHandedOver",
	})
	add(mutant{
		rule: "a lock is not handed over to a set of names",
		file: "pass.go",
		old:  "1, func(next *waiter) bool {\n\t\treturn next.accepts && ",
		new:  "1, func(next *waiter) bool {\n\t\treturn ",
		test: ". TestSetGetsTheSlotAndNoTenure",
	})
	add(mutant{
		rule: "callers with the same mode have one grant or claim",
		file: "options.go",
		old:  "s.mode == other.mode && ",
		new:  "",
		test: ". TestExclusiveLockIsNotHandedOverToSharedCallers",
	})
	add(mutant{
		rule: "a permit is handed over only on equal terms",
		file: "pass.go",
		old:  " && s.mayShareGrant(next.settings) && g.attach",
		new:  " && s.mode == next.settings.mode && g.attach",
		test: ". TestPermitHandOverNeedsEqualTerms",
	})
	add(mutant{
		rule: "a process hands a permit over for a short time only",
		file: "pass.go",
		old:  "!c.slices.MayHandOverPermit(now, g.takenAt)",
		new:  "false",
		test: ". TestPermitsAreHandedOver",
	})
	add(mutant{
		rule: "the time of hand-overs of a permit begins when the store was asked for it",
		file: "grant.go",
		old:  "\tg.used++\n",
		new:  "\tg.used++\n\tg.takenAt = g.client.clock.NoLaterThanNow()\n",
		test: ". TestPermitHandOversEnd",
	})
	add(mutant{
		rule: "a fair permit is not handed over",
		file: "pass.go",
		old:  "s.fair, s.fixed, ",
		new:  "s.fixed, ",
		test: ". TestFairPermitIsNotHandedOver",
	})
	add(mutant{
		rule: "a client that is closed hands nothing over",
		file: "pass.go",
		old:  "s.fixed, c.calls.closed.Load():",
		new:  "s.fixed:",
		test: ". TestClosedClientHandsNothingOver",
	})
	add(mutant{
		rule: "a hand-over is announced to callers that found the grant idle",
		file: "pass.go",
		old:  "slot.Announce(func(*occupant) {}) //",
		new:  "//",
		test: ". TestHandOverIsAnnounced",
	})
	add(mutant{
		rule: "the context of a lease ends before the lock is handed over",
		file: "unlock.go",
		old:  "\tt.endContext(ErrReleased)\n",
		new:  "\tdefer t.endContext(ErrReleased)\n",
		test: ". TestContextEndsBeforeTheHandOver",
	})
	add(mutant{
		rule: "a lock for which a caller waits is not released at once",
		file: "unlock.go",
		old:  " && !g.slot.Waited()",
		new:  "",
		test: ". TestHandOverAsksNothing",
	})
	add(mutant{
		rule: "a lock that expired during the hand-over is rejected",
		file: "bid.go",
		old:  "\t\tt.grant.expireIfOverdue()\n",
		new:  "",
		test: ". TestHandOverThatTookTooLongIsRejected",
	})
	add(mutant{
		rule: "a caller whose lease ended before it had it has a RequestTimeout of its own",
		file: "bid.go",
		old:  "\tb.call.noteAnswer()\n",
		new:  "",
		test: ". TestCallWhoseLeaseEndedEarlyHasItsTime",
	})
	add(mutant{
		rule: "a caller whose lease ended before it had it survives an outage",
		file: "enter.go",
		old:  "if b.call.storeHasAnswered { //",
		new:  "if false { //",
		test: ". TestWaiterWithALostHandOverSurvivesAnOutage",
	})
	add(mutant{
		rule: "so does one that does not enter the local queue again",
		file: "bid.go",
		old:  "\tb.ownState.Answered(c.clock.NoLaterThanNow())\n",
		new:  "",
		test: ". TestWaiterWithALostHandOverSurvivesAnOutage",
	})
	add(mutant{
		rule: "a lease that has ended is not delivered",
		file: "call.go",
		old:  "cause != nil && err == nil",
		new:  "cause != nil && false",
		test: ". TestHandOverThatTookTooLongIsRejected",
	})
	add(mutant{
		rule: "a set is delivered whole or not at all",
		file: "call.go",
		old:  "\t\tif err == nil {\n\t\t\tt.stage",
		new:  "\t\tif t.grant.cause == nil {\n\t\t\tt.stage",
		test: ". TestDeliverIsAllOrNone",
	})
	add(mutant{
		rule: "a closed client delivers no lease",
		file: "call.go",
		old:  "\tif c.calls.closed.Load() {\n",
		new:  "\tif false {\n",
		test: ". TestHooksBalanceWhenCloseMeetsALock$",
	})
	add(mutant{
		rule: "the end of a lease is reported after the hook Acquired",
		file: "tenure.go",
		old:  "early := t.stage < acquired",
		new:  "early := t.stage < delivered",
		test: ". TestEndDuringAcquiredIsReportedAfterIt",
	})
	add(mutant{
		rule: "an end during the hook Acquired is reported",
		file: "tenure.go",
		old:  "\t\tnotify(last.hook, last.event)\n",
		new:  "",
		test: ". TestEndDuringAcquiredIsReportedAfterIt",
	})
	add(mutant{
		rule: "Close reports the end of a lease",
		file: "close.go",
		old:  "\t\tt.reportEnd(c.hooks.Released, err)\n",
		new:  "\t\t_ = t\n",
		test: ". TestReleasedWhenCloseMeetsDo",
	})
	add(mutant{
		rule: "an end is reported once",
		file: "loss.go",
		old:  "\tg.reports = nil\n",
		new:  "",
		test: ". TestGrantEndsOnce",
	})
}

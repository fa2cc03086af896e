package main

// Rules of claims, and of what other callers learn of them.
func init() {
	add(mutant{
		rule: "a caller that gives up leaves its claim to the next",
		file: "bid.go",
		old:  "\tcase b.pass():\n",
		new:  "\tcase false:\n",
		test: ". TestSharedCallersThatGiveUpCostTwoAttempts",
	})
	add(mutant{
		rule: "a caller with the claim of another one goes on waiting where that was refused",
		file: "enter.go",
		old:  "if b.claim.due == 0 {",
		new:  "if true {",
		test: ". TestSharedCallersThatGiveUpCostTwoAttempts",
	})
	add(mutant{
		rule: "a passed claim is the next caller's, also if that gives up at once",
		file: "enter.go",
		old:  "\tb.inherit()\n",
		new:  "\tif b.call.ctx.Err() == nil {\n\t\tb.inherit()\n\t}\n",
		test: ". TestPassedClaimIsUndone",
	})
	add(mutant{
		rule: "a caller that fails does not pass its claim",
		file: "bid.go",
		old:  "deadline.Passed(b.call.ctx) == nil",
		new:  "deadline.Passed(b.call.ctx) == nil && false",
		test: ". TestClaimIsPassedOnEqualTerms",
	})
	add(mutant{
		rule: "a claim is passed on equal terms only",
		file: "bid.go",
		old:  " || !s.mayShareGrant(next.settings) {\n\t\t\treturn false\n\t\t}\n\t\tleft :=",
		new:  " || s.mode != next.settings.mode {\n\t\t\treturn false\n\t\t}\n\t\tleft :=",
		test: ". TestClaimIsPassedOnEqualTerms",
	})
	add(mutant{
		rule: "a claim is not passed to a set of names",
		file: "bid.go",
		old:  "if !next.accepts || ",
		new:  "if ",
		test: ". TestClaimIsPassedOnEqualTerms",
	})
	add(mutant{
		rule: "a set passes no claim",
		file: "bid.go",
		old:  "b.slot == nil, b.inBatch, ",
		new:  "b.slot == nil, ",
		test: ". TestClaimIsPassedOnEqualTerms",
	})
	add(mutant{
		rule: "the other callers learn of the refusal of a passed claim",
		file: "enter.go",
		old:  "b.slot.Announce(func(o *occupant) { o.refusal = refusal })",
		new:  "_ = refusal",
		test: ". TestPassedRefusalIsKnown",
	})
	add(mutant{
		rule: "a fair caller does not wait in the local queue",
		file: "lock.go",
		old:  "if !b.call.settings.fair {",
		new:  "if true {",
		test: ". TestFairOrderAcrossClients",
	})
	add(mutant{
		rule: "a caller ends its subscription",
		file: "lock.go",
		old:  "\tdefer b.claim.unsubscribe()\n",
		new:  "",
		test: ". TestSubscriptionsEnd",
	})
	add(mutant{
		rule: "a claim of a new owner has no subscription of the old one",
		file: "claim.go",
		old:  "\tcl.unsubscribe() // from what the old owner waits for\n",
		new:  "",
		test: ". TestSubscriptionsEnd",
	})
	add(mutant{
		rule: "a passed claim is tried when it is due",
		file: "enter.go",
		old:  "b.sleep(b.claim.due - b.call.client.clock.NoLaterThanNow())",
		new:  "b.sleep(b.claim.pollDelay(b.state()))",
		test: ". TestPassedClaimIsTriedWhenItIsDue",
	})
	add(mutant{
		rule: "a claim that the store has not answered is not passed on",
		file: "bid.go",
		old:  "b.claim.grant == nil, b.claim.refusal == nil:",
		new:  "b.claim.grant == nil:",
		test: ". TestImpatientCallerDelaysNoReportOfAnOutage",
	})
	add(mutant{
		rule: "a caller that passes its claim says when it gave up",
		file: "bid.go",
		old:  "\tb.slot.Update(func(o *occupant) { o.gaveUp = now })\n\tpassed",
		new:  "\tpassed",
		test: ". TestHolderIsKnownWhileAClaimIsPassedOn",
	})
	add(mutant{
		rule: "a shared caller shares the first attempt of one occupant",
		file: "enter.go",
		old:  "now.Occupied && now.Turn == v.Turn && said.mode.Shared",
		new:  "now.Occupied && said.mode.Shared",
		test: ". TestLimitOfSharedCallersThatAskOneAfterTheOther",
	})
	add(mutant{
		rule: "the store is not silent for as long as a caller waits for another one",
		file: "enter.go",
		old:  "b.occupant(0) //",
		new:  "b.occupant(c.clock.NoLaterThanNow()) //",
		test: ". TestWaitersOfALostLockReportNoOutage",
	})
	add(mutant{
		rule: "a claim whose grant ended keeps no subscription",
		file: "claim.go",
		old:  "\tcl.unsubscribe() //",
		new:  "\t//",
		test: ". TestGrantThatEndedEarlyLeavesNoSubscription",
	})
	add(mutant{
		rule: "a pause for other processes is no outage",
		file: "enter.go",
		old:  "case unknown && now.Occupant.pausing:",
		new:  "case false:",
		test: ". TestPauseIsNoOutage",
	})
	add(mutant{
		rule: "a hook that panics does not keep the end of its lease from being reported",
		file: "bid.go",
		old:  "defer b.tenure.noteAcquired() //",
		new:  "defer func() {\n\t\t\tif recover() == nil {\n\t\t\t\tb.tenure.noteAcquired()\n\t\t\t}\n\t\t}() //",
		test: ". TestHooksOfAPanic",
	})
	add(mutant{
		rule: "the end of a lease is reported only after Acquired",
		file: "bid.go",
		old:  "case t.wasAcquired():",
		new:  "case true:",
		test: ". TestHooksOfAPanic",
	})
	add(mutant{
		rule: "a TryLock beside other permits learns that the store answers",
		file: "enter.go",
		old:  "\t\t\t\tb.call.noteAnswer()\n\t\t\t\tb.beside++\n",
		new:  "",
		test: ". TestTryLockBehindPermitsReportsNoOutage",
	})
	add(mutant{
		rule: "a lease begins after the pause of its caller",
		file: "wait.go",
		old:  "	a.entered = 0\n",
		new:  "",
		test: ". TestPauseTakesNoTimeFromTheLease",
	})
}

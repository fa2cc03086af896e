package main

// Rules of shared locks, semaphores and queues.
func init() {
	add(mutant{
		rule: "a caller that holds a name shared cannot lock it exclusively",
		file: "reentry.go",
		old:  "\tcase stored.Shared && !mode.Shared:\n",
		new:  "\tcase false:\n",
		test: ". TestReentryInModes",
	})
	add(mutant{
		rule: "a shared grant is shared for a moment only, so that exclusive callers do not starve",
		file: "enter.go",
		old:  " || c.clock.Now()-g.takenAt >= joinTime",
		new:  "",
		test: ". TestWriterIsNotStarved",
	})
	add(mutant{
		rule: "a shared grant near its end is not shared",
		file: "pass.go",
		old:  "if g.TrustDeadline()-g.client.clock.Now() < g.Grant.TTL/2 {",
		new:  "if false {",
		test: ". TestGrantNearItsEndIsNotShared",
	})
	add(mutant{
		rule: "an idle grant is not shared",
		file: "pass.go",
		old:  "return g.tenures != nil && ",
		new:  "return ",
		test: ". TestIdleGrantIsNotShared",
	})
	add(mutant{
		rule: "a downgraded grant is not shared",
		file: "lease.go",
		old:  "\t\tdefer slot.Leave(true) //",
		new:  "\t\tshared := *g.settings\n\t\tshared.mode.Shared = true\n\t\tg.settings = &shared\n\t\tc.offer(g)\n\t\tdefer slot.Leave(true) //",
		test: ". TestDowngradedGrantIsNotShared",
	})
	add(mutant{
		rule: "a shared grant is not shared on other terms",
		file: "pass.go",
		old:  "!s.mayShareGrant(g.settings)",
		new:  "s.mode != g.settings.mode",
		test: ". TestSharedGrantIsOffered",
	})
	add(mutant{
		rule: "shared callers that wait together are admitted together",
		file: "pass.go",
		old:  "\tc.shared.Store(g.name(), g)\n\tc.serveShared(g)\n",
		new:  "\tc.shared.Store(g.name(), g)\n",
		test: ". TestSharedGrantIsOffered",
	})
	add(mutant{
		rule: "a shared grant is not given to a set of names",
		file: "pass.go",
		old:  "next.accepts && g.share",
		new:  "g.share",
		test: ". TestSharedGrantIsOffered",
	})
	add(mutant{
		rule: "readers that come while others read share their grant",
		file: "pass.go",
		old:  "\tc.shared.Store(g.name(), g)\n",
		new:  "",
		test: ". TestReadersOfManyNames",
	})
	add(mutant{
		rule: "a shared grant that was given up is forgotten",
		file: "grant.go",
		old:  "\t\tg.client.shared.CompareAndDelete(g.name(), g)\n",
		new:  "",
		test: ". TestSharedGrantsAreForgotten",
	})
	add(mutant{
		rule: "a shared grant that was given up leaves a newer one of its name",
		file: "grant.go",
		old:  "g.client.shared.CompareAndDelete(g.name(), g)",
		new:  "g.client.shared.Delete(g.name())",
		test: ". TestSharedGrantsAreForgotten",
	})
	add(mutant{
		rule: "the loss of a shared grant ends all its leases",
		file: "grant.go",
		old:  "t != nil; t = t.next {",
		new:  "t != nil; t = nil {",
		test: ". TestLossEndsAllMembers",
	})
	add(mutant{
		rule: "the last of the shared callers releases the lock",
		file: "unlock.go",
		old:  "\t\terr = g.handOverOrRelease(ctx)\n",
		new:  "",
		test: ". TestSharedHoldersExcludeExclusiveOnes",
	})
	add(mutant{
		rule: "shared callers whose settings differ hold the name together",
		file: "bid.go",
		old:  "\t\tb.leaveSlot() // the store admits other holders\n",
		new:  "",
		test: ". TestSharedWithOtherSettings",
	})
	add(mutant{
		rule: "the first attempt of a shared caller is that of all, and no waiting",
		file: "known.go",
		old:  "mode.Shared && o.mode.Shared && o.heldError() == nil",
		new:  "false",
		test: ". TestSharedWaitBeginsAfterTheFirstAttempt",
	})
	add(mutant{
		rule: "an exclusive waiter keeps its place",
		file: "claim.go",
		old:  " || cl.client.traits.Shared && exclusive",
		new:  " || false && exclusive",
		test: ". TestWriterIsNotStarved",
	})
	add(mutant{
		rule: "a slot is left once, also if Unlock comes during a downgrade",
		file: "lease.go",
		old:  "slot, g.slot = g.slot, nil",
		new:  "slot = g.slot",
		test: ". TestSlotIsLeftOnce",
	})
	add(mutant{
		rule: "a downgrade admits the other callers of the process",
		file: "lease.go",
		old:  "\t\tdefer slot.Leave(true) //",
		new:  "\t\t//",
		test: ". TestDowngradedGrantIsNotShared",
	})
	add(mutant{
		rule: "Unlock of a shared lease that is not the last one reports a loss",
		file: "unlock.go",
		old:  "\t\tg.expireIfOverdue() //",
		new:  "\t\t//",
		test: ". TestUnlockOfASharedLeaseReportsALoss",
	})
	add(mutant{
		rule: "a waiter queues behind fair waiters",
		file: "claim.go",
		old:  "return refused && refusal.Queued && ",
		new:  "return false && refused && refusal.Queued && ",
		test: ". TestNoKindOfWaiterStarves",
	})
	add(mutant{
		rule: "the next caller of a process queues behind fair waiters",
		file: "bid.go",
		old:  "b.claim.grant == nil && b.knowsFairWaiters()",
		new:  "false && b.knowsFairWaiters()",
		test: ". TestNextCallerOfAProcessQueues",
	})
	add(mutant{
		rule: "the first place of a fair waiter wakes the other waiters",
		file: "redislock/lua/redisson_acquire_any_mode.lua",
		old:  "if redis.call('rpush', queue, place) == 1 then",
		new:  "if redis.call('rpush', queue, place) == 0 then",
		test: "test/stores/redis TestFairCallersDoNotStarveOthers",
	})
	add(mutant{
		rule: "a LockAll that shared holders refuse has no place to give up",
		file: "lockbatch.go",
		old:  "claim.noteFailure(reqs[i].Queue, err)",
		new:  "claim.noteFailure(reqs[i].Queue || b.bids[i].claim.queues(), err)",
		test: ". TestRefusedBatchIsNotUndone",
	})
	add(mutant{
		rule: "an owner that is given up is released",
		file: "claim.go",
		old:  "\t\tcl.client.releaseInBackground(cl.grant.Grant, cl.client.requestTimeout)\n",
		new:  "",
		test: ". TestLockAllUndoesBeforeItQueues",
	})
	add(mutant{
		rule: "a LockAll undoes its attempts for all names before it queues",
		file: "lockbatch.go",
		old:  "b.bids[i].claim.startAnew() //",
		new:  "_ = i //",
		test: ". TestLockAllUndoesBeforeItQueues",
	})
	add(mutant{
		rule: "a LockAll queues if callers of its process know of fair waiters",
		file: "lockbatch.go",
		old:  "mayQueue(err) || errors.Is",
		new:  "mayQueue(err) || false && errors.Is",
		test: ". TestSetQueuesIfItsProcessKnowsOfFairWaiters",
	})
}

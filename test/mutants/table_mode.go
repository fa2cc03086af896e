package main

func init() {
	add(mutant{
		rule: "a caller that holds a name shared cannot lock it exclusively",
		file: "reentry.go",
		old:  "	case stored.Shared && !mode.Shared:\n",
		new:  "	case false:\n",
		test: ". TestReentryInModes",
	})
	add(mutant{
		rule: "a lock is not handed over to a shared caller",
		file: "handover.go",
		old:  "!next.acceptsHandOver || next.settings.mode != h.settings.mode || ",
		new:  "",
		test: ". TestExclusiveLockIsNotHandedOverToSharedCallers",
	})
	add(mutant{
		rule: "a process hands a permit over for a short time only",
		file: "handover.go",
		old:  "c.slices.MayHandOverPermit(now, h.takenAt) && ",
		new:  "",
		test: ". TestPermitsAreHandedOver",
	})
	add(mutant{
		rule: "the time of hand-overs of a permit begins when the store granted it",
		file: "acquire.go",
		old:  "lock.revocation, lock.takenAt",
		new:  "lock.revocation, c.clock.Now()",
		test: ". TestPermitHandOversEnd",
	})
	add(mutant{
		rule: "a permit is handed over only on equal terms",
		file: "handover.go",
		old:  " || !h.settings.mayShareGrant(next.settings)",
		new:  "",
		test: ". TestPermitHandOverNeedsEqualTerms",
	})
	add(mutant{
		rule: "a waiter that is served while its context ends does not leave",
		file: "internal/localqueue/localqueue.go",
		old:  "	if t.served || s.occupant == t.caller {",
		new:  "	if s.occupant == t.caller {",
		test: "internal/localqueue TestServedWaiterHasNoSlot",
	})
	add(mutant{
		rule: "a group is open for a time slice only",
		file: "group.go",
		old:  "now-g.began >= joinTime || ",
		new:  "",
		test: ". TestWriterIsNotStarved",
	})
	add(mutant{
		rule: "members have tokens of the grant only",
		file: "group.go",
		old:  "			if g.tokensLeft() {\n",
		new:  "			if true {\n",
		test: ". TestMembersHaveTokensOfTheGrant",
	})
	add(mutant{
		rule: "a caller joins only a group with a token left",
		file: "group.go",
		old:  " || !g.tokensLeft() {",
		new:  " {",
		test: ". TestMembersHaveTokensOfTheGrant",
	})
	add(mutant{
		rule: "readers that arrive together join the latest group",
		file: "group.go",
		old:  "latest != before && latest.join(m) {",
		new:  "false && latest.join(m) {",
		test: ". TestReaderJoinsTheLatestGroup",
	})
	add(mutant{
		rule: "the loss of the leader ends the members",
		file: "hold.go",
		old:  "		h.group.end(cause)\n",
		new:  "",
		test: ". TestLossEndsAllMembers",
	})
	add(mutant{
		rule: "the last member releases the lock",
		file: "group.go",
		old:  "		return h.releaseOrHandOver(ctx)\n",
		new:  "		return nil\n",
		test: ". TestSharedHoldersExcludeExclusiveOnes",
	})
	add(mutant{
		rule: "shared callers whose settings differ hold the name together",
		file: "acquire.go",
		old:  "		h.leaveSlot() // the store admits other holders\n",
		new:  "		_ = h\n",
		test: ". TestSharedWithOtherSettings",
	})
	add(mutant{
		rule: "an exclusive waiter keeps its place",
		file: "hold.go",
		old:  " || h.client.traits.Shared && exclusive",
		new:  " || false && exclusive",
		test: ". TestWriterIsNotStarved",
	})
	add(mutant{
		rule: "a lock is not handed over while a downgrade is under way",
		file: "downgrade.go",
		old:  "	slot := h.slot.Swap(nil) // so that a concurrent Unlock does not hand the lock over\n",
		new:  "	var slot *slot\n",
		test: ". TestUnlockDuringADowngrade",
	})
	add(mutant{
		rule: "a leader that was lost admits no member",
		file: "group.go",
		old:  "	case h.cause != nil: // the leader was lost before there was a member\n		err, lost = errGroupEnded, true\n",
		new:  "",
		test: ". TestLeaderLostBeforeTheDecision",
	})
	add(mutant{
		rule: "a leader that was lost before it had a member is released",
		file: "group.go",
		old:  "	if lost {\n		h.releaseLost()\n	}\n",
		new:  "	_ = lost\n",
		test: ". TestLeaderLostBeforeTheDecision",
	})
	add(mutant{
		rule: "the context of a member ends with its leader",
		file: "hold.go",
		old:  "		return leader.endCause()\n",
		new:  "		return nil\n",
		test: ". TestMemberEndsWithItsLeader",
	})
	add(mutant{
		rule: "a long wait for a known holder is no outage",
		file: "groupwait.go",
		old:  "if !lc.storeHasAnswered && !lc.client.traits.Local {",
		new:  "if !lc.client.traits.Local {",
		test: ". TestLongWaitIsNoOutage",
	})
	add(mutant{
		rule: "Unlock of a member that is not the last one reports a loss",
		file: "unlock.go",
		old:  "		h.expireIfOverdue() // only the last member asks the store, which would report the loss\n",
		new:  "		_ = h\n",
		test: ". TestUnlockOfAMemberReportsALoss",
	})
	add(mutant{
		rule: "a waiter queues behind fair waiters",
		file: "wait.go",
		old:  "return refused && refusal.Queued && ",
		new:  "return false && refused && refusal.Queued && ",
		test: ". TestNoKindOfWaiterStarves",
	})
	add(mutant{
		rule: "the next caller of a process queues behind fair waiters",
		file: "wait.go",
		old:  "first && h.knowsFairWaiters()",
		new:  "first && false",
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
		old:  "h.noteFailure(reqs[i].Queue, err)",
		new:  "h.noteFailure(reqs[i].Queue || h.queues(), err)",
		test: ". TestRefusedBatchIsNotUndone",
	})
	add(mutant{
		rule: "a release in the background goes on until the lock expires",
		file: "hold.go",
		old:  "return h.TrustDeadline() + h.Margin",
		new:  "return h.TrustDeadline()",
		test: ". TestUnlockGoesOnDuringTheMargin",
	})
	add(mutant{
		rule: "a LockAll undoes its attempts for all names before it queues",
		file: "lockbatch.go",
		old:  "if h.needsUndo { // by",
		new:  "if false { // by",
		test: ". TestLockAllUndoesBeforeItQueues",
	})
	add(mutant{
		rule: "a LockAll queues if callers of its process know of fair waiters",
		file: "lockbatch.go",
		old:  "return b.mayQueue(b.blocking, err) || errors.Is",
		new:  "return b.mayQueue(b.blocking, err) || false && errors.Is",
		test: ". TestLockAllDoesNotStarveBesideItsProcess",
	})
}

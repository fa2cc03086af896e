package main

func init() {
	add(mutant{
		rule: "a stale release through another store leaves the next lock with the same key alone",
		file: "etcdlock/release.go",
		old:  `clientv3.Compare(clientv3.CreateRevision(key), "=", revision)`,
		new:  `clientv3.Compare(clientv3.CreateRevision(key), ">", 0)`,
		test: "test/stores/etcd TestStaleCallsLeaveALaterLockAlone",
	})
	add(mutant{
		rule: "a break that was overtaken by a release and an acquisition breaks nothing",
		file: "etcdlock/release.go",
		old:  `case !reply.Succeeded:`,
		new:  `case reply == nil:`,
		test: "test/stores/etcd TestOvertakenBreakBreaksNothing",
	})
	add(mutant{
		rule: "a break needs the token of the holder",
		file: "etcdlock/release.go",
		old:  "if kv.CreateRevision == revision { // it has the lock for as long as it exists\n			return s.deleteKey(ctx, string(kv.Key), revision)",
		new:  "if kv.CreateRevision != 0 {\n			return s.deleteKey(ctx, string(kv.Key), kv.CreateRevision)",
		test: "test/stores/etcd TestConformance/single/break-token",
	})
	add(mutant{
		rule: "a lock is granted for no longer than its lease lasts",
		file: "etcdlock/lease.go",
		old:  `return min(asked, l.ttl-l.slack())`,
		new:  `return min(asked, l.ttl)`,
		test: "test/stores/etcd TestGrantPromisesNoMoreThanItsLease",
	})
	add(mutant{
		rule: "a lease counts as renewed when the renewal was sent, not when it was answered",
		file: "etcdlock/lease.go",
		old:  `l.ttl, l.sent = time.Duration(ttl)*time.Second, sent`,
		new:  `l.ttl, l.sent = time.Duration(ttl)*time.Second, max(sent, s.clock.Now())`,
		test: "test/stores/etcd TestRenewalCountsFromItsRequest",
	})
	add(mutant{
		rule: "a lease whose grant was not answered is used",
		file: "etcdlock/lease.go",
		old:  `if isError(err, rpctypes.ErrLeaseExist) {`,
		new:  `if isError(err, rpctypes.ErrLeaseNotFound) {`,
		test: "test/stores/etcd TestUnansweredLeaseIsUsed",
	})
	add(mutant{
		rule: "Close revokes a lease whose grant was not answered",
		file: "etcdlock/lease.go",
		old:  `s.leases[l] = struct{}{} // Close revokes it`,
		new:  ``,
		test: "test/stores/etcd TestCloseRevokesAnUnansweredLease",
	})
	add(mutant{
		rule: "a watch that was open is opened again soon",
		file: "etcdlock/watch.go",
		old:  `pause.Reset()`,
		new:  `_ = pause`,
		test: "test/stores/etcd TestWatchReopensSoon",
	})
	add(mutant{
		rule: "a watch that was opened again wakes its waiters",
		file: "etcdlock/queue.go",
		old: `h.position.stale = true
		}
		w.wake()`,
		new: `h.position.stale = true
		}`,
		test: "test/stores/etcd TestWatchReopensSoon/etcd$",
	})
	add(mutant{
		rule: "a watch moves to the connection that replaced a silent one",
		file: "etcdlock/watch.go",
		old:  `defer context.AfterFunc(c.ctx, cancel)()`,
		new:  ``,
		test: "test/stores/etcd TestWatchMovesWithTheConnection",
	})
	add(mutant{
		rule: "a waiter whose place was deleted is not the first",
		file: "etcdlock/watch.go",
		old:  `h.position.stale = true // without its key it is not the first`,
		new:  ``,
		test: "test/stores/etcd TestDeletedPlaceIsNotFirst",
	})
	add(mutant{
		rule: "a connection that does not answer is replaced",
		file: "etcdlock/conn.go",
		old: `				s.examine(c)
				again,`,
		new:  `				again,`,
		test: "test/stores/etcd TestSilentConnectionIsReplaced/release",
	})
	add(mutant{
		rule: "a store over a client with a namespace writes nothing outside of it",
		file: "etcdlock/conn.go",
		old:  `if s.replaceable() {`,
		new:  `{`,
		test: "test/stores/etcd TestNamespaceIsKept",
	})
	add(mutant{
		rule: "calls that wait on a silent connection are repeated over the new one",
		file: "etcdlock/conn.go",
		old:  `again, replaced = several, c.ctx.Done()`,
		new:  `again = several`,
		test: "test/stores/etcd TestSilentConnectionIsReplaced/renew",
	})
	add(mutant{
		rule: "a store whose dialled member is gone returns to its client, which knows other members",
		file: "etcdlock/conn.go",
		old:  `if err != nil && c.dialled && ctx.Err() == nil {`,
		new:  `if err != nil && c.dialled && ctx.Err() != nil {`,
		test: "test/stores/etcd TestSilentClusterIsDialledAgain",
	})
	add(mutant{
		rule: "a call without a deadline ends",
		file: "etcdlock/conn.go",
		old:  `limit := time.NewTimer(callLimit - answerLimit)`,
		new:  `limit := time.NewTimer(100 * callLimit)`,
		test: "test/stores/etcd TestCallsWithoutADeadlineEnd",
	})
	add(mutant{
		rule: "a member that does not answer is left for one that does",
		file: "etcdlock/conn.go",
		old:  `if next != nil && !bad.Load() {`,
		new:  `if next != nil {`,
		test: "test/stores/etcd TestBadMembers/silent",
	})
	add(mutant{
		rule: "a request whose connection was replaced is sent again",
		file: "etcdlock/conn.go",
		old:  `if inTime && (failure == nil || s.conn.Load() == c) {`,
		new:  `if inTime {`,
		test: "etcdlock TestReplacedConnectionIsNoAnswer",
	})
	add(mutant{
		rule: "a slow answer counts also after another try",
		file: "etcdlock/conn.go",
		old:  `if a.err == nil || again`,
		new:  `if again && a.err == nil || again`,
		test: "test/stores/etcd TestBadMembers/slow",
	})
	add(mutant{
		rule: "an attempt is not refused from memory when the server is gone",
		file: "etcdlock/position.go",
		old:  `case h.lease.gone || s.ageLocked(h.lease) >= h.lease.slack():`,
		new:  `case h.lease.gone:`,
		test: "test/stores/etcd TestGoneServerIsNotAnsweredForFromMemory/paused",
	})
	add(mutant{
		rule: "a key that may still be written or deleted is not used again",
		file: "etcdlock/hold.go",
		old: `	if h.unconfirmed {
		l.strayKeys`,
		new: `	if h.unconfirmed && h.key == "" {
		l.strayKeys`,
		test: "test/stores/etcd TestOvertakenReleaseDeletesNoLaterLock",
	})
	add(mutant{
		rule: "a release that was repeated over another connection may still be carried out",
		file: "etcdlock/release.go",
		old:  `if tries > 1 || err != nil && rejectionOf(err) == nil {`,
		new:  `if err != nil && rejectionOf(err) == nil {`,
		test: "test/stores/etcd TestOvertakenReleaseDeletesNoLaterLock",
	})
	add(mutant{
		rule: "a release without an answer may still be carried out",
		file: "etcdlock/release.go",
		old:  `if tries > 1 || err != nil && rejectionOf(err) == nil {`,
		new:  `if tries > 1 {`,
		test: "test/stores/etcd TestReleaseCanBeRepeatedAfterARestart",
	})
	add(mutant{
		rule: "the deletion of an expired lock may still be carried out",
		file: "etcdlock/janitor.go",
		old:  `h.unconfirmed = h.unconfirmed || err != nil`,
		new:  `_ = err`,
		test: "test/stores/etcd TestOvertakenExpiryDeletesNoLaterLock",
	})
	add(mutant{
		rule: "a renewal deletes what late attempts wrote",
		file: "etcdlock/lease.go",
		old:  `_ = s.deleteKeys(ctx, keys)`,
		new:  `_ = keys`,
		test: "test/stores/etcd TestOvertakenAttemptIsUndone/try",
	})
	add(mutant{
		rule: "a renewal does not renew a broken lock because its key was written late",
		file: "etcdlock/renew.go",
		old:  `case revision != h.revision:`,
		new:  `case revision == 0:`,
		test: "test/stores/etcd TestLateWriteDoesNotReviveABrokenLock/Renew",
	})
	add(mutant{
		rule: "a release does not release a broken lock because its key was written late",
		file: "etcdlock/release.go",
		old:  `(opts == nil || reply.PrevKvs[0].CreateRevision == was.revision)`,
		new:  `(opts == nil || reply.PrevKvs[0].CreateRevision >= was.revision)`,
		test: "test/stores/etcd TestLateWriteDoesNotReviveABrokenLock/Release",
	})
	add(mutant{
		rule: "a release needs the token of the lock",
		file: "etcdlock/release.go",
		old:  `token != 0 && was.held && tokenOf(was.revision) != token {`,
		new:  `token != 0 && !was.held {`,
		test: "test/stores/etcd TestConformance/single/release-token",
	})
	add(mutant{
		rule: "an attempt whose lease was revoked gets another lease",
		file: "etcdlock/acquire.go",
		old: `			s.leaseLost(l)
			continue`,
		new: `			s.leaseLost(l)
			return outcome{err: s.attemptFailed(h, req, s.explain(call, err))}`,
		test: "test/stores/etcd TestAttemptOnARevokedLeaseTakesAnother",
	})
	add(mutant{
		rule: "an attempt whose caller has left does not try another lease",
		file: "etcdlock/acquire.go",
		old:  `!asked || caller.Err() == nil`,
		new:  `!asked || call.Err() == nil`,
		test: "test/stores/etcd TestAbandonedAttemptTakesNoOtherLease",
	})
	add(mutant{
		rule: "an attempt that found no space may have written its key",
		file: "etcdlock/acquire.go",
		old:  `rejectionOf(err) == nil || isError(err, rpctypes.ErrNoSpace)`,
		new:  `rejectionOf(err) == nil`,
		test: "test/stores/etcd TestNoSpaceAfterTheWrite",
	})
	add(mutant{
		rule: "a place in the queue is not the lock",
		file: "etcdlock/acquire.go",
		old:  `case v.ownRevision != 0 && (h.held || v.aheadAllow()):`,
		new:  `case v.ownRevision != 0:`,
		test: "test/stores/etcd TestQueuedAttemptKeepsAPlace",
	})
	add(mutant{
		rule: "two owners of one store never share a key",
		file: "etcdlock/key.go",
		old:  `s.keys[key] == nil && !stray`,
		new:  `!stray`,
		test: "test/stores/etcd TestQueuedAttemptKeepsAPlace",
	})
	add(mutant{
		rule: "an abandoned attempt is undone when its outcome is known",
		file: "etcdlock/release.go",
		old:  `_ = s.release(ctx, h, grant.Token)`,
		new:  `_ = grant`,
		test: "test/stores/etcd TestAbandonedAttemptIsUndoneAfterAPause",
	})
	add(mutant{
		rule: "a lock that is not renewed ends, although others keep its lease",
		file: "etcdlock/janitor.go",
		old:  `expired[h.key] = h`,
		new:  ``,
		test: "test/stores/etcd TestOvertakenExpiryDeletesNoLaterLock",
	})
	add(mutant{
		rule: "the lease of a waiter is renewed while it waits",
		file: "etcdlock/janitor.go",
		old:  `old = append(old, l)`,
		new:  ``,
		test: "test/stores/etcd TestWatchedPlaceOutlivesItsTTL",
	})
	add(mutant{
		rule: "a row refuses a smaller token",
		file: "fence/dialect.go",
		old:  `AND coalesce(%s, 0) <= %s",`,
		new:  `AND coalesce(%s, 0) >= %s - 1000000",`,
		test: "test/fence TestGuard/sqlite",
	})
	add(mutant{
		rule: "a column that does not keep the token is an error",
		file: "fence/fence.go",
		old:  `if name := types[0].DatabaseTypeName(); !g.holdsTokens(`,
		new:  `if name := types[0].DatabaseTypeName(); name == "INT" && !g.holdsTokens(`,
		test: "test/fence TestColumnThatHoldsNoTokensIsRefused",
	})
	add(mutant{
		rule: "a row that was inserted in between remembers the token",
		file: "fence/fence.go",
		old:  `case seen == int64(token):`,
		new:  `case seen <= int64(token):`,
		test: "test/fence TestRowInsertedInBetween",
	})
	add(mutant{
		rule: "a key of several rows is refused",
		file: "fence/fence.go",
		old:  `case n > 1:`,
		new:  `case n > 2:`,
		test: "test/fence TestKeyOfSeveralRowsIsRefused/sqlite",
	})
	add(mutant{
		rule: "a call whose context ends before it asks leaves no hold in memory",
		file: "etcdlock/hold.go",
		old:  `s.endLocked(h) // else it would stay for ever`,
		new:  ``,
		test: "etcdlock TestCancelledCallLeavesNoHold",
	})
	add(mutant{
		rule: "a shared holder that asks again keeps the lock while an exclusive request waits",
		file: "etcdlock/acquire.go",
		old:  `case v.ownRevision != 0 && (h.held || v.aheadAllow()):`,
		new:  `case v.ownRevision != 0 && v.aheadAllow() && v.first.revision == v.ownRevision:`,
		test: "test/stores/etcd TestConformance/single/shared-repeated",
	})
	add(mutant{
		rule: "shared holders keep a place for an exclusive request",
		file: "etcdlock/acquire.go",
		old:  `case req.Queue && v.first.mode.Shared && !state.enqueue:`,
		new:  `case false:`,
		test: "test/stores/etcd TestConformance/single/shared-writer$",
	})
	add(mutant{
		rule: "a request that is refused because of its mode leaves no place",
		file: "etcdlock/acquire.go",
		old:  `if errors.Is(o.err, driver.ErrMode) ||`,
		new:  `if errors.Is(o.err, driver.ErrClosed) ||`,
		test: "test/stores/etcd TestPlaceOfAMismatchIsGivenUp",
	})
	add(mutant{
		rule: "a permit that was free is taken only if nothing has changed since",
		file: "etcdlock/query.go",
		old:  `"<", 1+state.freeAt)`,
		new:  `"<", 1+1000*state.freeAt)`,
		test: "test/stores/etcd TestConformance/single/limit$",
	})
	add(mutant{
		rule: "an attempt for a permit that is free ends, although others come and go",
		file: "etcdlock/acquire.go",
		old:  `state.enqueue = state.races >= maxRaces`,
		new:  ``,
		test: "test/stores/etcd TestTryOfABusySemaphoreEnds/granted",
	})
	add(mutant{
		rule: "an attempt without Queue that took a place for a moment leaves none",
		file: "etcdlock/acquire.go",
		old:  `|| o.err != nil && state.races >= maxRaces {`,
		new:  `{`,
		test: "test/stores/etcd TestTryOfABusySemaphoreEnds/refused",
	})
	add(mutant{
		rule: "a late attempt does not undo a downgrade",
		file: "etcdlock/query.go",
		old:  `clientv3.Compare(clientv3.CreateRevision(key), "=", 0)`,
		new:  `clientv3.Compare(clientv3.CreateRevision(key), ">", -1)`,
		test: "test/stores/etcd TestLateAttemptDoesNotUndoADowngrade",
	})
	add(mutant{
		rule: "a late downgrade leaves a later lock with the same key alone",
		file: "etcdlock/downgrade.go",
		old:  `clientv3.Compare(clientv3.CreateRevision(was.key), "=", was.revision)`,
		new:  `clientv3.Compare(clientv3.CreateRevision(was.key), ">", 0)`,
		test: "test/stores/etcd TestLateDowngradeLeavesALaterLockAlone",
	})
	add(mutant{
		rule: "a downgrade compares the token",
		file: "etcdlock/downgrade.go",
		old:  `|| tokenOf(was.revision) != token {`,
		new:  `|| token == 0 {`,
		test: "test/stores/etcd TestDowngradeComparesTheToken",
	})
	add(mutant{
		rule: "a waiter is not ended by a request in another mode that is about to withdraw",
		file: "etcdlock/acquire.go",
		old:  `|| placed && s.mayWithdrawLocked(h, v.first) {`,
		new:  `{`,
		test: "test/stores/etcd TestWaiterOutlivesAMismatch",
	})
	add(mutant{
		rule: "a waiter asks when a key in another mode has become the first",
		file: "etcdlock/position.go",
		old:  `|| wasFirst && p.isMismatch()`,
		new:  `|| wasFirst && p.isMismatch() && p.maxCompatible > 0`,
		test: "etcdlock TestWaiterBehindAnotherModeAsks",
	})
	add(mutant{
		rule: "a permit waits for a waiter of another program, which does not wait for the permit",
		file: "etcdlock/query.go",
		old:  `len(v.ahead) <= v.maxCompatible && !slices.ContainsFunc(v.ahead, blocks)`,
		new:  `len(v.ahead) <= v.maxCompatible && !slices.ContainsFunc(v.ahead[:0], blocks)`,
		test: "test/stores/etcd TestInteropOfModes/etcd/concurrency.Mutex_permits",
	})
	add(mutant{
		rule: "a shared waiter asks the server before it has the lock",
		file: "etcdlock/position.go",
		old:  `case h.position.isFree() && !h.mode.Shared:`,
		new:  `case h.position.isFree():`,
		test: "test/stores/etcd TestDeletedSharedPlaceIsNotTheLock",
	})
	add(mutant{
		rule: "Close reports the loss of locks before it revokes them",
		file: "etcdlock/etcdlock.go",
		old:  `reports.Go(h.lost)`,
		new:  `_ = h.lost`,
		test: "test/stores/etcd TestConformance/cluster",
	})
}

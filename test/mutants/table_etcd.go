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
		old:  `if first.revision == 0 || tokenOf(first.revision) != token {`,
		new:  `if first.revision == 0 {`,
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
		new:  `if errors.Is(err, errLeaseGone) {`,
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
		file: "etcdlock/watch.go",
		old: `h.place.stale = true
		}
		w.wake()`,
		new: `h.place.stale = true
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
		old:  `h.place.stale = true // without its key it is not the first`,
		new:  ``,
		test: "test/stores/etcd TestDeletedPlaceIsNotFirst",
	})
	add(mutant{
		rule: "a connection that does not answer is replaced",
		file: "etcdlock/conn.go",
		old: `			s.suspect(c)
			stop`,
		new:  `			stop`,
		test: "test/stores/etcd TestSilentConnectionIsReplaced/release",
	})
	add(mutant{
		rule: "a store over a client with a namespace writes nothing outside of it",
		file: "etcdlock/conn.go",
		old:  `if !s.answers(c) && s.replaceable() {`,
		new:  `if !s.answers(c) {`,
		test: "test/stores/etcd TestNamespaceIsKept",
	})
	add(mutant{
		rule: "calls that wait on a silent connection are repeated over the new one",
		file: "etcdlock/conn.go",
		old:  `context.AfterFunc(c.ctx, cancel)`,
		new:  `context.AfterFunc(c.ctx, func() {})`,
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
		rule: "an attempt is not refused from memory when the server is gone",
		file: "etcdlock/queue.go",
		old:  `case h.lease.gone || s.age(h.lease) >= h.lease.slack():`,
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
		old:  `(opts == nil || reply.PrevKvs[0].CreateRevision == revision)`,
		new:  `(opts == nil || reply.PrevKvs[0].CreateRevision >= revision)`,
		test: "test/stores/etcd TestLateWriteDoesNotReviveABrokenLock/Release",
	})
	add(mutant{
		rule: "a release needs the token of the lock",
		file: "etcdlock/release.go",
		old:  `if token != 0 && held && tokenOf(revision) != token {`,
		new:  `if token != 0 && !held {`,
		test: "test/stores/etcd TestConformance/single/release-token",
	})
	add(mutant{
		rule: "an attempt whose lease was revoked gets another lease",
		file: "etcdlock/acquire.go",
		old: `			s.leaseLost(l)
			continue`,
		new: `			s.leaseLost(l)
			return outcome{err: s.attemptFailed(h, req, s.explain(ctx, err))}`,
		test: "test/stores/etcd TestAttemptOnARevokedLeaseTakesAnother",
	})
	add(mutant{
		rule: "an attempt whose caller has left does not try another lease",
		file: "etcdlock/acquire.go",
		old:  `!asked || caller.Err() == nil`,
		new:  `!asked || ctx.Err() == nil`,
		test: "test/stores/etcd TestAbandonedAttemptTakesNoOtherLease",
	})
	add(mutant{
		rule: "a place in the queue is not the lock",
		file: "etcdlock/acquire.go",
		old:  `case v.own != 0 && v.first.revision == v.own:`,
		new:  `case v.own != 0:`,
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
		old:  `due.keys[h.key] = h`,
		new:  ``,
		test: "test/stores/etcd TestOvertakenExpiryDeletesNoLaterLock",
	})
	add(mutant{
		rule: "the lease of a waiter is renewed while it waits",
		file: "etcdlock/janitor.go",
		old:  `due.leases = append(due.leases, l)`,
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
		old:  `if seen != int64(token) {`,
		new:  `if seen < 0 {`,
		test: "test/fence TestNarrowColumnIsRefused",
	})
	add(mutant{
		rule: "a longer token is verified again",
		file: "fence/fence.go",
		old:  `if length <= known {`,
		new:  `if known > 0 {`,
		test: "test/fence TestNarrowColumnIsRefused",
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
		old:  `s.end(h) // no call has used it`,
		new:  ``,
		test: "etcdlock TestCancelledCallLeavesNoHold",
	})
}

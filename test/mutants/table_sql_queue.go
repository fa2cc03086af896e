package main

func init() {
	// Attempts that are carried out late.
	add(mutant{
		rule: "an SQL attempt whose answer was lost is undone after the release",
		file: "sqllock/late.go",
		old:  `return !ok || failed.Op != "dial"`,
		new:  `return ok && failed.Op == "dial"`,
		test: "test/stores/mysql TestLateAttempts/row/^acquire$",
	})
	add(mutant{
		rule: "a Release settles the attempts of its owner before it is sent",
		file: "sqllock/scheme_row.go",
		old:  `s.attempts.Settle(ctx, grant)`,
		new:  `s.attempts.Settle(ctx, driver.Grant{})`,
		test: "test/stores/mysql TestLateAttempts/row/^acquire$",
	})
	add(mutant{
		rule: "a Release waits for an attempt that goes on in a shared transaction",
		file: "sqllock/together.go",
		old:  `if !s.backlog.drop(j) {`,
		new:  `if s.backlog.drop(j) && s.closed.Load() {`,
		test: "test/stores/mysql TestLateBatch/row",
	})
	add(mutant{
		rule: "undoing does not come between a Release and its answer",
		file: "sqllock/scheme_row.go",
		old: `	defer settled()
`,
		new: `	settled()
`,
		test: "test/stores/mysql TestSlowReleaseAfterALostAttempt",
	})
	add(mutant{
		rule: "a late place in the queue is undone, too",
		file: "sqllock/late.go",
		old:  `left, err = run.changed(ctx, giveUp, name, owner.Hex())`,
		new:  `left, err = released, nil`,
		test: "test/stores/mysql TestLateAttempts/row/place",
	})
	add(mutant{
		rule: "an attempt to take a place is recorded when its answer is lost",
		file: "sqllock/queue.go",
		old: `owner: req.Owner, atomic: s.dialect.atomic, run: func(ctx context.Context, run runner) error {
		return takePlace(`,
		new: `atomic: s.dialect.atomic, run: func(ctx context.Context, run runner) error {
		return takePlace(`,
		test: "test/stores/mysql TestLateAttempts/row/place",
	})
	add(mutant{
		rule: "a Pass is recorded for the next owner when its answer is lost",
		file: "sqllock/pass.go",
		old:  `owner: req.Owner}`,
		new:  `owner: grant.Owner}`,
		test: "test/stores/mysql TestLateAttempts/row/pass",
	})
	add(mutant{
		rule: "an AcquireAll whose commit is not answered is recorded",
		file: "sqllock/queue.go",
		old:  `unsure && s.mayHappen(failed)`,
		new:  `unsure && !s.mayHappen(failed)`,
		test: "test/stores/postgres TestLateAttempts/row/all",
	})
	add(mutant{
		rule: "Close of a store over a silent connection returns",
		file: "sqlsession/sqlsession.go",
		old:  `defer time.AfterFunc(callLimit, c.cancel).Stop()`,
		new:  `defer time.AfterFunc(100*callLimit, c.cancel).Stop()`,
		test: "test/stores/sqlsession TestCloseOverASilentConnection/mariadb/session",
	})

	// Calls that share a transaction.
	add(mutant{
		rule: "what may have been committed is not done again",
		file: "sqllock/together.go",
		old:  `case unsure:`,
		new:  `case unsure && err == nil:`,
		test: "test/stores/mysql TestLostBatch",
	})
	add(mutant{
		rule: "jobs of a transaction that was undone are made again, one by one",
		file: "sqllock/together.go",
		old:  `j.err = s.alone(ctx, j)`,
		new:  `j.err = nil`,
		test: "test/stores/mysql TestUndoneBatch",
	})
	add(mutant{
		rule: "the end of one caller's context does not end what others have begun",
		file: "sqllock/together.go",
		old:  `ctx, cancel := context.WithTimeout(s.ctx, busyLimit)`,
		new:  `ctx, cancel := context.WithTimeout(s.ctx, busyPause)`,
		test: "test/stores/sqlite TestCancelStorm",
	})

	// The queue.
	add(mutant{
		rule: "the places of a process are renewed in one statement",
		file: "sqllock/placed.go",
		old:  `return placeOld`,
		new:  `return placeMissing`,
		test: "test/stores/sqlite TestCrowdsOfFairWaiters",
	})
	add(mutant{
		rule: "the place of a waiter that has not come again is left alone",
		file: "sqllock/placed.go",
		old:  `case own.attempted.After(own.written):`,
		new:  `case !own.attempted.Before(own.written):`,
		test: "sqllock TestPlacesAreRenewedTogether",
	})
	add(mutant{
		rule: "a place lasts for one TTL after the last attempt, whoever renews it",
		file: "sqllock/placed.go",
		old:  `own.ttl - now.Sub(own.attempted)`,
		new:  `own.ttl + now.Sub(own.attempted)`,
		test: "sqllock TestPlacesAreRenewedTogether",
	})
	add(mutant{
		rule: "a place that was not found by a renewal is taken anew",
		file: "sqllock/placed.go",
		old:  `case renewed == nil || renewed[a.rowKey]:`,
		new:  `case renewed == nil || !renewed[rowKey{}]:`,
		test: "sqllock TestPlacesAreRenewedTogether",
	})
	add(mutant{
		rule: "a waiter whose turn it is not writes nothing, although the lock is free",
		file: "sqllock/scheme_row.go",
		old:  `req.Fair && held.Remaining != 0`,
		new:  `req.Fair && held.Remaining < 0`,
		test: "test/stores/sqlite TestWaitersBehindAFreeLockDoNotWrite",
	})
	add(mutant{
		rule: "a waiter that let its place lapse begins anew",
		file: "sqllock/queue.go",
		old:  `run.exec(ctx, prune, req.Name)`,
		new:  `run.exec(ctx, prune, req.Owner.Hex())`,
		test: "test/stores/mysql TestPlaces/row",
	})
	add(mutant{
		rule: "an owner that was granted the lock leaves the queue",
		file: "sqllock/queue.go",
		old:  `_, err = run.exec(ctx, leave, req.Name, owner)`,
		new:  `_, err = run.exec(ctx, leave, owner, req.Name)`,
		test: "test/stores/sqlite TestConformance/^fair-order$",
	})
	add(mutant{
		rule: "a waiter that gives up leaves the queue",
		file: "sqllock/scheme_row.go",
		old:  `left, err := s.change(ctx, "release", giveUp, grant.Name, owner)`,
		new:  `left, err := s.change(ctx, "release", giveUp, owner, grant.Name)`,
		test: "test/stores/sqlite TestConformance/^fair-cancelled$",
	})

	// Polling.
	add(mutant{
		rule: "the waiter at the head of the queue is woken",
		file: "sqllock/poll.go",
		old:  `st.head.String == w.owner`,
		new:  `st.head.String == w.name`,
		test: "test/stores/sqlite TestConformance/^watch",
	})
	add(mutant{
		rule: "the expiry of a lock or a place deserves a look of its own",
		file: "sqllock/pace.go",
		old:  `wait = min(wait, seen.expiry)`,
		new:  `wait = max(wait, seen.expiry)`,
		test: "sqllock TestPaceKeepsExpiries",
	})
	add(mutant{
		rule: "looks follow a change, which is seen when it is committed",
		file: "sqllock/pace.go",
		old:  `p.follow *= 2`,
		new:  `p.follow = 0`,
		test: "sqllock TestPaceFollowsAChange",
	})
	add(mutant{
		rule: "looks at a server that tells nothing get rarer while no lock changes hands",
		file: "sqllock/tempo.go",
		old:  `t.gap = min(2*t.gap, maxTempo)`,
		new:  `t.gap = min(t.gap, maxTempo)`,
		test: "sqllock TestTempo",
	})
	add(mutant{
		rule: "a waiter that has left is not listed any more",
		file: "sqllock/watch.go",
		old:  `if ws.Remove(w.name, w) && !w.published.IsZero() {`,
		new:  `if ws.Remove(w.name, w) && w.published.IsZero() {`,
		test: "test/stores/sqlite TestWaitersAreSeen",
	})
}

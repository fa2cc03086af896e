package main

func init() {
	// Attempts that are carried out late.
	add(mutant{
		rule: "an SQL attempt whose answer was lost is undone after the release",
		file: "sqllock/calls.go",
		old:  `return !ok || failed.Op != "dial"`,
		new:  `return ok && failed.Op == "dial"`,
		test: "test/stores/sqlservers TestLateAttempts/mariadb/row/^acquire$",
	})
	add(mutant{
		rule: "a Release settles the attempts of its owner before it is sent",
		file: "sqllock/release.go",
		old:  `s.attempts.Settle(ctx, grant)`,
		new:  `s.attempts.Settle(ctx, driver.Grant{})`,
		test: "test/stores/sqlservers TestLateAttempts/mariadb/row/^acquire$",
	})
	add(mutant{
		rule: "a Release waits for an attempt that goes on in a shared transaction",
		file: "sqllock/calls.go",
		old:  `case outcome == batch.Left:`,
		new:  `case outcome == batch.Left+1:`,
		test: "test/stores/sqlservers TestLateBatch/mariadb/row",
	})
	add(mutant{
		rule: "undoing does not come between a Release and its answer",
		file: "sqllock/release.go",
		old: `	defer settled()
`,
		new: `	settled()
`,
		test: "test/stores/sqlservers TestSlowReleaseAfterALostAttempt/mariadb",
	})
	add(mutant{
		rule: "a late place in the queue is undone, too",
		file: "sqllock/release.go",
		old:  `left, err = run.Changed(ctx, statement.GiveUp, name, owner.Hex())`,
		new:  `left, err = released, nil`,
		test: "test/stores/sqlservers TestLateAttempts/mariadb/row/place",
	})
	add(mutant{
		rule: "an attempt to take a place is recorded when its answer is lost",
		file: "sqllock/fair.go",
		old: `Owner: req.Owner, Atomic: s.dialect.atomic, Run: func(ctx context.Context, run statement.Runner) error {
		return takePlace(`,
		new: `Atomic: s.dialect.atomic, Run: func(ctx context.Context, run statement.Runner) error {
		return takePlace(`,
		test: "test/stores/sqlservers TestLateAttempts/mariadb/row/place",
	})
	add(mutant{
		rule: "an AcquireAll whose commit is not answered is recorded",
		file: "sqllock/acquire.go",
		old:  `isUnsure(failed) && s.mayHappen(failed)`,
		new:  `isUnsure(failed) && !s.mayHappen(failed)`,
		test: "test/stores/sqlservers TestLateAttempts/postgres/row/all",
	})
	add(mutant{
		rule: "Close of a store over a silent connection returns",
		file: "sqlsession/conn.go",
		old:  `defer time.AfterFunc(callLimit, c.cancel).Stop()`,
		new:  `defer time.AfterFunc(100*callLimit, c.cancel).Stop()`,
		test: "test/stores/sqlsession TestCloseOverASilentConnection/mariadb/session",
	})

	// Calls that share a transaction.
	add(mutant{
		rule: "what may have been committed is not done again",
		file: "sqllock/calls.go",
		old:  `if err != nil && !isUnsure(err) {`,
		new:  `if err != nil && (!isUnsure(err) || err != nil) {`,
		test: "test/stores/sqlservers TestLostBatch/mariadb",
	})
	add(mutant{
		rule: "jobs of a transaction that was undone are made again, one by one",
		file: "sqllock/calls.go",
		old:  `outcome = s.alone(ctx, j)`,
		new:  `outcome = nil`,
		test: "test/stores/sqlservers TestUndoneBatch/mariadb",
	})
	add(mutant{
		rule: "the end of one caller's context does not end what others have begun",
		file: "sqllock/calls.go",
		old:  `ctx, cancel := context.WithTimeout(s.ctx, busyLimit)`,
		new:  `ctx, cancel := context.WithTimeout(s.ctx, busyPause)`,
		test: "test/stores/sqlite TestCancelStorm",
	})

	// The queue.
	add(mutant{
		rule: "the places of a process are renewed in one statement",
		file: "sqllock/internal/places/places.go",
		old:  `return Old`,
		new:  `return Missing`,
		test: "test/stores/sqlite TestCrowdsOfFairWaiters",
	})
	add(mutant{
		rule: "the place of a waiter that has not come again is left alone",
		file: "sqllock/internal/places/places.go",
		old:  `case own.attempted.After(own.written):`,
		new:  `case !own.attempted.Before(own.written):`,
		test: "sqllock/internal/places TestPlacesAreRenewedTogether",
	})
	add(mutant{
		rule: "a place lasts for one TTL after the last attempt, whoever renews it",
		file: "sqllock/internal/places/places.go",
		old:  `own.ttl - now.Sub(own.attempted)`,
		new:  `own.ttl + now.Sub(own.attempted)`,
		test: "sqllock/internal/places TestPlacesAreRenewedTogether",
	})
	add(mutant{
		rule: "a place that was not found by a renewal is taken anew",
		file: "sqllock/internal/places/places.go",
		old:  `case renewed == nil || renewed[a.Key]:`,
		new:  `case renewed == nil || !renewed[statement.Key{}]:`,
		test: "sqllock/internal/places TestPlacesAreRenewedTogether",
	})
	add(mutant{
		rule: "a waiter whose turn it is not writes nothing, although the lock is free",
		file: "sqllock/acquire.go",
		old:  `req.Fair && held.Remaining != 0`,
		new:  `req.Fair && held.Remaining < 0`,
		test: "test/stores/sqlite TestWaitersBehindAFreeLockDoNotWrite",
	})
	add(mutant{
		rule: "a waiter that let its place lapse begins anew",
		file: "sqllock/fair.go",
		old:  `run.Exec(ctx, statement.Prune, req.Name)`,
		new:  `run.Exec(ctx, statement.Prune, req.Owner.Hex())`,
		test: "test/stores/sqlservers TestPlaces/mariadb/row",
	})
	add(mutant{
		rule: "an owner that was granted the lock leaves the queue",
		file: "sqllock/acquire.go",
		old:  `_, err = run.Exec(ctx, statement.Leave, req.Name, req.Owner.Hex())`,
		new:  `_, err = run.Exec(ctx, statement.Leave, req.Owner.Hex(), req.Name)`,
		test: "test/stores/sqlite TestConformance/^fair-order$",
	})
	add(mutant{
		rule: "a waiter that gives up leaves the queue",
		file: "sqllock/release.go",
		old:  `statement.GiveUp, grant.Name, owner)`,
		new:  `statement.GiveUp, owner, grant.Name)`,
		test: "test/stores/sqlite TestConformance/^fair-cancelled$",
	})

	// Polling.
	add(mutant{
		rule: "the waiter at the head of the queue is woken",
		file: "sqllock/watch.go",
		old:  `head.String == w.owner`,
		new:  `head.String == w.name`,
		test: "test/stores/sqlite TestConformance/^watch",
	})
	add(mutant{
		rule: "a poll is made when a lock or a place expires",
		file: "sqllock/internal/notify/file.go",
		old:  `wait = min(wait, r.Expiry)`,
		new:  `wait = max(wait, r.Expiry)`,
		test: "sqllock/internal/notify TestFileScheduleKeepsExpiries",
	})
	add(mutant{
		rule: "polls follow a change, which is visible when it is committed",
		file: "sqllock/internal/notify/file.go",
		old:  `s.follow *= 2`,
		new:  `s.follow = 0`,
		test: "sqllock/internal/notify TestFileScheduleFollowsAChange",
	})
	add(mutant{
		rule: "polls of a server that does not notify get rarer while no lock changes hands",
		file: "sqllock/internal/notify/notify.go",
		old:  `s.gap = min(2*s.gap, MaxInterval)`,
		new:  `s.gap = min(s.gap, MaxInterval)`,
		test: "sqllock/internal/notify TestServerSchedule$",
	})
	add(mutant{
		rule: "a waiter that has left is not listed any more",
		file: "sqllock/watch.go",
		old:  `if ws.Remove(w.name, w) && !w.published.IsZero() {`,
		new:  `if ws.Remove(w.name, w) && w.published.IsZero() {`,
		test: "test/stores/sqlite TestWaitersAreListed",
	})
}

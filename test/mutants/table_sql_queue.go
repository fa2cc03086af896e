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
		old:  `case outcome == batch.Abandoned:`,
		new:  `case outcome == batch.Abandoned+1:`,
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
		old:  `deleted, err = run.Changed(ctx, statement.GiveUpPlace, name, owner.Hex())`,
		new:  `deleted, err = released && name == "", nil`,
		test: "test/stores/sqlservers TestLateAttempts/mariadb/row/place",
	})
	add(mutant{
		rule: "an attempt to take a place is recorded when its answer is lost",
		file: "sqllock/fair.go",
		old: `Owner: req.Owner, InTx: s.dialect.prefersTx, Run: func(ctx context.Context, run statement.Runner) error {
		return takePlace(`,
		new: `InTx: s.dialect.prefersTx, Run: func(ctx context.Context, run statement.Runner) error {
		return takePlace(`,
		test: "test/stores/sqlservers TestLateAttempts/mariadb/row/place",
	})
	add(mutant{
		rule: "an AcquireAll whose commit is not answered is recorded",
		file: "sqllock/acquireall.go",
		old:  `isUnknown(failed) && s.mayHappen(failed)`,
		new:  `isUnknown(failed) && !s.mayHappen(failed)`,
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
		old:  `return err != nil && !isUnknown(err), err`,
		new:  `return err != nil, err`,
		test: "test/stores/sqlservers TestLostBatch/mariadb",
	})
	add(mutant{
		rule: "jobs of a transaction that was undone are made again, one by one",
		file: "sqllock/internal/batch/batch.go",
		old:  `return q.runAlone(ctx, j)`,
		new:  `return Ended, nil`,
		test: "test/stores/sqlservers TestUndoneBatch/mariadb",
	})
	add(mutant{
		rule: "what refuses one caller refuses no other that shares its transaction",
		file: "sqllock/internal/batch/batch.go",
		old:  `if j.undone {`,
		new:  `if j.undone && j.err == nil {`,
		test: "sqllock/internal/batch TestJobsOfAnUndoneBatchRunAlone",
	})
	add(mutant{
		rule: "a row that is locked keeps a writer from other calls for a second at most (PostgreSQL)",
		file: "sqllock/internal/statement/postgres.go",
		old:  `set_config('lock_timeout', '1s', true)`,
		new:  `set_config('lock_timeout', '0', true)`,
		test: "test/stores/sqlservers TestAbandonedAttempt/postgres",
	})
	add(mutant{
		rule: "a row that is locked keeps a writer from other calls for a second at most (MariaDB)",
		file: "sqllock/internal/statement/mysql.go",
		old:  `SET STATEMENT innodb_lock_wait_timeout = 1 FOR`,
		new:  `SET STATEMENT innodb_lock_wait_timeout = 100 FOR`,
		test: "test/stores/sqlservers TestAbandonedAttempt/mariadb",
	})
	add(mutant{
		rule: "calls that other transactions block leave a writer to other calls",
		file: "sqllock/internal/batch/batch.go",
		old:  `q.BlockedNames.Put(j.Name, blocked)`,
		new:  `q.BlockedNames.Put("", blocked)`,
		test: "sqllock/internal/batch TestBlockedJobsLeaveAWriter",
	})
	add(mutant{
		rule: "an attempt whose context ended before it was sent is dropped",
		file: "sqllock/internal/batch/batch.go",
		old:  `if ctx.Err() != nil && q.drop(j) {`,
		new:  `if j.undone && q.drop(j) {`,
		test: "sqllock/internal/batch TestJobIsDroppedBeforeItIsSent",
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
		old:  `own.attempted.After(own.written):`,
		new:  `!own.attempted.Before(own.written):`,
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
		old:  `req.Fair && ms != 0`,
		new:  `req.Fair && ms < 0`,
		test: "test/stores/sqlite TestWaitersBehindAFreeLockDoNotWrite",
	})
	add(mutant{
		rule: "a waiter that let its place expire begins anew",
		file: "sqllock/fair.go",
		old:  `run.Exec(ctx, statement.Prune, req.Name)`,
		new:  `run.Exec(ctx, statement.Prune, req.Owner.Hex())`,
		test: "test/stores/sqlservers TestPlaces/mariadb/row",
	})
	add(mutant{
		rule: "an owner that was granted the lock leaves the queue",
		file: "sqllock/acquire.go",
		old:  `_, err = run.Exec(ctx, statement.DeletePlace, req.Name, req.Owner.Hex())`,
		new:  `_, err = run.Exec(ctx, statement.DeletePlace, req.Owner.Hex(), req.Name)`,
		test: "test/stores/sqlite TestConformance/^fair-order$",
	})
	add(mutant{
		rule: "a waiter that gives up leaves the queue",
		file: "sqllock/release.go",
		old:  `statement.GiveUpPlace, grant.Name, grant.Owner.Hex()`,
		new:  `statement.GiveUpPlace, grant.Owner.Hex(), grant.Name`,
		test: "test/stores/sqlite TestConformance/^fair-cancelled$",
	})

	// Polling.
	add(mutant{
		rule: "the waiter at the head of the queue is woken",
		file: "sqllock/poll.go",
		old:  `head.String == w.owner`,
		new:  `head.String == w.name`,
		test: "test/stores/sqlite TestConformance/^watch",
	})
	add(mutant{
		rule: "a poll is made when a lock or a place expires",
		file: "sqllock/internal/notify/notify.go",
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
		old:  `s.gap = min(max(2*s.gap, shortest), MaxInterval)`,
		new:  `s.gap = min(max(s.gap, shortest), MaxInterval)`,
		test: "sqllock/internal/notify TestServerSchedule$",
	})
	add(mutant{
		rule: "many processes that poll an SQLite file share the time of a few",
		file: "sqllock/internal/notify/file.go",
		old:  `if n := r.crowd(); n > 2 {`,
		new:  `if n := r.crowd(); n > 2000 {`,
		test: "sqllock/internal/notify TestFileScheduleOfABusyDatabase",
	})
	add(mutant{
		rule: "one slow poll does not blind a process in a crowd",
		file: "sqllock/internal/notify/file.go",
		old:  `min(time.Duration(crowdShare*n)*s.cost, maxGap)`,
		new:  `time.Duration(crowdShare*n) * s.cost`,
		test: "sqllock/internal/notify TestFileScheduleOfABusyDatabase",
	})
	add(mutant{
		rule: "a caller that asks does not wait for the polls of other processes",
		file: "sqllock/internal/notify/notify.go",
		old:  `s.free = end.Add(max(MinInterval, end.Sub(start)))`,
		new:  `s.free = end.Add(max(shortest, end.Sub(start)))`,
		test: "sqllock/internal/notify TestServerScheduleWhenAsked",
	})
	add(mutant{
		rule: "many processes that poll a server poll as often as a few",
		file: "sqllock/internal/notify/notify.go",
		old:  `time.Duration(max(r.crowd(), serverPollers))`,
		new:  `time.Duration(serverPollers)`,
		test: "sqllock/internal/notify TestServerSchedule$",
	})
	add(mutant{
		rule: "a process counts the others that wait for the same name",
		file: "sqllock/crowd.go",
		old:  `counted[name] = n`,
		new:  `counted[name] = 0`,
		test: "test/stores/sqlite TestProcessesShareThePolls",
	})
	add(mutant{
		rule: "a process that died is not counted for long",
		file: "sqllock/crowd.go",
		old:  `oldest := publishTTL - publishRefresh - publishLateness`,
		new:  `oldest := 0 * publishLateness`,
		test: "test/stores/sqlite TestProcessesShareThePolls",
	})
	add(mutant{
		rule: "a waiter with a place of its own depends on the polls of its process",
		file: "sqllock/crowd.go",
		old:  `w.Mode() != (driver.Mode{}) || placed(w.owner)`,
		new:  `w.Mode() != (driver.Mode{})`,
		test: "sqllock TestCrowd",
	})
	add(mutant{
		rule: "a waiter that has left is not listed any more",
		file: "sqllock/watch.go",
		old: `	if !w.published.IsZero() {
		ws.gone = append(ws.gone, w.row())
		sqldb.Signal`,
		new: `	if w.published.IsZero() {
		ws.gone = append(ws.gone, w.row())
		sqldb.Signal`,
		test: "test/stores/sqlite TestWaitersAreListed",
	})
}

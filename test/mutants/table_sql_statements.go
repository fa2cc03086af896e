package main

func init() {
	add(mutant{
		rule: "the connection for renewals is kept until the next one",
		file: "sqllock/reserve.go",
		old:  `max(reserveIdle, time.Duration(s.reserve.ttl.Load()))`,
		new:  `reserveIdle`,
		test: "sqllock TestReserveIsKeptUntilTheNextRenewal",
	})
	add(mutant{
		rule: "releases that share a statement lock the rows in the order of the names (PostgreSQL)",
		file: "sqllock/internal/statement/postgres.go",
		old:  ` ORDER BY l.name FOR UPDATE OF l),`,
		new:  ` FOR UPDATE OF l),`,
		test: "test/stores/sqlservers TestBatchLocksRowsInOrder/y",
	})
	add(mutant{
		rule: "a renewal ends with its context, also if its COMMIT goes on",
		file: "sqllock/reserve.go",
		old:  `_, _ = detach.Call(ctx, detach.Go, func() error { sqldb.Discard(lost); return nil })`,
		new:  `sqldb.Discard(lost); _ = detach.Go`,
		test: "test/stores/sqlservers TestReserveHangs/mariadb",
	})
	add(mutant{
		rule: "the test of a file's locks ends what it begins, whatever its time limit says (SQLite)",
		file: "internal/sqldb/sqlite.go",
		old:  `end := context.WithoutCancel(ctx)`,
		new:  `end := ctx`,
		test: "test/stores/sqlite TestLocksAreTestedWhilePoolIsInUse",
	})
	add(mutant{
		rule: "a renewal never shortens a lock, however late MariaDB carries it out",
		file: "sqllock/internal/statement/mysql.go",
		old:  `l.expires = GREATEST(l.expires, {now} + g.ttl)`,
		new:  `l.expires = {now} + g.ttl`,
		test: "test/stores/sqlservers TestLateRenewal/mariadb",
	})
	add(mutant{
		rule: "a renewal never shortens a lock, however late PostgreSQL carries it out",
		file: "sqllock/internal/statement/postgres.go",
		old:  `expires = greatest(l.expires, {now} + g.ttl)`,
		new:  `expires = {now} + g.ttl`,
		test: "test/stores/sqlservers TestLateRenewal/postgres",
	})
	add(mutant{
		rule: "a renewal never shortens a lock (SQLite)",
		file: "sqllock/internal/statement/sqlite.go",
		old:  `expires = max(expires, {now} + g.ttl)`,
		new:  `expires = {now} + g.ttl`,
		test: "test/stores/sqlite TestConformance/renew-never-shortens",
	})
	add(mutant{
		rule: "asking again never shortens a lock (MariaDB)",
		file: "sqllock/internal/statement/mysql.go",
		old:  "GREATEST(IF(` + mine + `, expires, 0), {now} + ?3)",
		new:  `{now} + ?3`,
		test: "test/stores/sqlservers TestConformance$/mariadb/row/acquire-never-shortens",
	})
	add(mutant{
		rule: "asking again never shortens a lock (PostgreSQL)",
		file: "sqllock/internal/statement/postgres.go",
		old:  "greatest(CASE WHEN ` + mine + ` THEN expires END, {now} + ?3:int)",
		new:  `{now} + ?3:int`,
		test: "test/stores/sqlservers TestConformance$/postgres/row/acquire-never-shortens",
	})
	add(mutant{
		rule: "asking again never shortens a lock (SQLite)",
		file: "sqllock/internal/statement/sqlite.go",
		old:  `max(iif(l.owner IS excluded.owner AND l.expires > excluded.since, l.expires, 0), excluded.expires)`,
		new:  `excluded.expires`,
		test: "test/stores/sqlite TestConformance/acquire-never-shortens",
	})
	add(mutant{
		rule: "a place in the queue is never shortened (MariaDB)",
		file: "sqllock/internal/statement/mysql.go",
		old:  `UPDATE expires = GREATEST(expires, {now} + ?3)`,
		new:  `UPDATE expires = {now} + ?3`,
		test: "test/stores/sqlservers TestLatePlace/mariadb",
	})
	add(mutant{
		rule: "a place in the queue is never shortened (PostgreSQL)",
		file: "sqllock/internal/statement/statement.go",
		old:  `expires = {greatest}(q.expires, excluded.expires)`,
		new:  `expires = excluded.expires`,
		test: "test/stores/sqlservers TestLatePlace/postgres",
	})
	add(mutant{
		rule: "MariaDB ends a renewal that waits for a row and whose caller has left",
		file: "sqllock/internal/statement/mysql.go",
		old:  `/*M! SET STATEMENT innodb_lock_wait_timeout = 2 FOR */ `,
		new:  ``,
		test: "test/stores/sqlservers TestAbandonedRenewal/mariadb",
	})
	add(mutant{
		rule: "PostgreSQL ends a renewal that waits for a row and whose caller has left",
		file: "sqllock/internal/statement/postgres.go",
		old:  `set_config('lock_timeout', '2s', true)`,
		new:  `set_config('lock_timeout', '0', true)`,
		test: "test/stores/sqlservers TestAbandonedRenewal/postgres",
	})
	add(mutant{
		rule: "only the owner releases a lock (MariaDB)",
		file: "sqllock/internal/statement/statement.go",
		old:  `name = ?1:text AND owner = ?2:text AND (?3:int = 0 OR token = ?3:int)`,
		new:  `name = ?1:text AND owner <> x'00' AND ?2:text = ?2:text AND (?3:int = 0 OR token = ?3:int)`,
		test: "test/stores/sqlservers TestConformance$/mariadb/row/release-owner",
	})
	add(mutant{
		rule: "a lock is released only with the token it was granted with (PostgreSQL)",
		file: "sqllock/internal/statement/statement.go",
		old:  "(?3:int = 0 OR token = ?3:int) AND expires > {now}`",
		new:  "?3:int >= 0 AND expires > {now}`",
		test: "test/stores/sqlservers TestConformance$/postgres/row/release-token",
	})
	add(mutant{
		rule: "a renewal does not bring an expired lock back (MariaDB)",
		file: "sqllock/internal/statement/mysql.go",
		old:  "(g.token = 0 OR l.token = g.token) AND l.expires > {now}`",
		new:  "(g.token = 0 OR l.token = g.token)`",
		test: "test/stores/sqlservers TestConformance$/mariadb/row/renew-expired",
	})
	add(mutant{
		rule: "a renewal does not bring an expired lock back (PostgreSQL)",
		file: "sqllock/internal/statement/postgres.go",
		old:  `(g.token = 0 OR l.token = g.token) AND l.expires > {now}`,
		new:  `(g.token = 0 OR l.token = g.token)`,
		test: "test/stores/sqlservers TestConformance$/postgres/row/renew-expired",
	})
	add(mutant{
		rule: "every grant has a larger token (PostgreSQL)",
		file: "sqllock/internal/statement/postgres.go",
		old:  `THEN token ELSE token + ?6:int END`,
		new:  `THEN token ELSE greatest(token, ?6:int) END`,
		test: "test/stores/sqlservers TestConformance$/postgres/row/token-order",
	})
	add(mutant{
		rule: "every grant has a larger token (SQLite)",
		file: "sqllock/internal/statement/sqlite.go",
		old:  `THEN l.token + ?6 END`,
		new:  `THEN l.token END`,
		test: "test/stores/sqlite TestConformance/token-order",
	})
	add(mutant{
		rule: "every grant is above all tokens of the one before (MariaDB)",
		file: "sqllock/internal/statement/mysql.go",
		old:  `token, token + ?6))`,
		new:  `token, token + GREATEST(?6 - 1, 1)))`,
		test: "test/stores/sqlservers TestConformance$/mariadb/row/token-order",
	})
	add(mutant{
		rule: "a new row begins above the tokens of rows that were swept (SQLite)",
		file: "sqllock/internal/statement/sqlite.go",
		old:  `?1, (SELECT value + ?6 FROM`,
		new:  `?1, (SELECT ?6 + 0 * value FROM`,
		test: "test/stores/sqlite TestTokensRiseAcrossJanitorRuns",
	})
	add(mutant{
		rule: "a lock is broken only with its token (PostgreSQL)",
		file: "sqllock/internal/statement/statement.go",
		old:  "token BETWEEN ?2:int AND ?3:int AND owner NOT",
		new:  "?2:int > 0 AND ?3:int > 0 AND owner NOT",
		test: "test/stores/sqlservers TestConformance$/postgres/row/break-token",
	})
	add(mutant{
		rule: "fair waiters are served in the order of arrival (MariaDB)",
		file: "sqllock/internal/statement/mysql.go",
		old:  "COALESCE((SELECT owner ` + head + `), ?2) = ?2 OR",
		new:  `1 = 1 OR`,
		test: "test/stores/sqlservers TestConformance$/mariadb/row/fair-order",
	})
	add(mutant{
		rule: "only rows that nobody has used for an hour are swept (SQLite)",
		file: "sqllock/internal/statement/sqlite.go",
		old:  "AND expires <= {now} - ?2 AND token <= ?3`",
		new:  "AND ?2 > 0 AND token <= ?3`",
		test: "test/stores/sqlite TestJanitorSparesWhatIsTaken",
	})
	add(mutant{
		rule: "Renew reports which of many grants is lost",
		file: "sqllock/renew.go",
		old:  `errs[i] = driver.ErrNotHeld`,
		new:  `errs[which[0]] = driver.ErrNotHeld`,
		test: "test/stores/sqlite TestRenewManyLocks",
	})
	add(mutant{
		rule: "renewals have a connection to spare while writers wait",
		file: "sqllock/renew.go",
		old:  `s.withConn(ctx, s.writing, s.renewing, "renew", func()`,
		new:  `s.withConn(ctx, s.writing, nil, "renew", func()`,
		test: "test/stores/sqlservers TestRenewalsComeThrough/mariadb",
	})
	add(mutant{
		rule: "a transaction of unknown outcome is not carried out again",
		file: "sqllock/calls.go",
		old:  `return err != nil && !isUnknown(err), err`,
		new:  `return err != nil && !errors.Is(err, context.Canceled), err`,
		test: "test/stores/sqlservers TestLostBatch/mariadb",
	})
	add(mutant{
		rule: "the server ends the transaction of a client that vanished (PostgreSQL)",
		file: "sqllock/internal/statement/postgres.go",
		old:  `'idle_in_transaction_session_timeout', '2s'`,
		new:  `'idle_in_transaction_session_timeout', '2h'`,
		test: "test/stores/sqlservers TestVanishedClient/postgres/row",
	})

	// Locks with several holders.
	add(mutant{
		rule: "a share expires by itself",
		file: "sqllock/internal/share/share.go",
		old:  `return s.Expires <= row.Now`,
		new:  `return s.Expires <= 0`,
		test: "sqllock/internal/share TestSharesExpireByThemselves",
	})
	add(mutant{
		rule: "no more holders than permits",
		file: "sqllock/internal/share/share.go",
		old:  `mode.Limit > len(l.Shares)`,
		new:  `mode.Limit >= len(l.Shares)`,
		test: "sqllock/internal/share TestReleaseEndsOneShare",
	})
	add(mutant{
		rule: "a row is locked while its shares change (PostgreSQL)",
		file: "sqllock/internal/statement/postgres.go",
		old:  " WHERE l.name = ?1:text FOR UPDATE OF l`",
		new:  " WHERE l.name = ?1:text`",
		test: "test/stores/sqlservers TestConformance$/postgres/row/^limit$",
	})
	add(mutant{
		rule: "a shared request gives way to exclusive waiters",
		file: "sqllock/shared.go",
		old:  `if before.count > max(0, `,
		new:  `if before.count > max(100, `,
		test: "test/stores/sqlite TestConformance/^shared-writer$",
	})
	add(mutant{
		rule: "a shared lock of unknown outcome is undone",
		file: "sqllock/release.go",
		old:  `lock.Release(owner.Hex(), 0)`,
		new:  `lock.Release(name, 0)`,
		test: "test/stores/sqlservers TestLateAttempts/postgres/row/^shared$",
	})
	add(mutant{
		rule: "a row with several holders lasts as long as the last of them",
		file: "sqllock/internal/share/share.go",
		old:  `row.Expires, row.Holder = lastExpiry(l.Shares), string(text)`,
		new:  `row.Expires, row.Holder = l.Shares[0].Expires, string(text)`,
		test: "sqllock/internal/share TestReleaseEndsOneShare",
	})
	add(mutant{
		rule: "a renewal beside a downgrade does not report a loss",
		file: "sqllock/renew.go",
		old:  `errors.Is(errs[i], driver.ErrNotHeld) && s.downgraded`,
		new:  `errors.Is(errs[i], driver.ErrHeld) && s.downgraded`,
		test: "test/stores/sqlservers TestRenewalBesideADowngrade/mariadb",
	})
	add(mutant{
		rule: "a downgrade compares the token (SQL)",
		file: "sqllock/internal/share/share.go",
		old:  `s == nil || s.Token != token || l.Mode.Limit > 0`,
		new:  `s == nil || l.Mode.Limit > 0`,
		test: "sqllock/internal/share TestDowngrade",
	})
	add(mutant{
		rule: "the queue does not refuse a fair holder that asks again",
		file: "sqllock/internal/statement/statement.go",
		old:  `AND NOT EXISTS (SELECT 1 FROM {locks} WHERE name = ?1:text AND owner = ?2:text AND expires > {now})`,
		new:  ``,
		test: "test/stores/sqlservers TestFairHolderAsksAgain/mariadb/row",
	})
	add(mutant{
		rule: "an exclusive lock is granted with its place, although its owner did not hear of it",
		file: "sqllock/internal/places/places.go",
		old:  `own != nil && !own.expired(time.Now())`,
		new:  `own != nil && !own.unknown && !own.expired(time.Now())`,
		test: "test/stores/sqlservers TestPlaceOfUnknownOutcome/postgres",
	})
	add(mutant{
		rule: "a row that is locked costs no other lock its renewal",
		file: "sqllock/internal/statement/postgres.go",
		old:  "'lock_timeout', '1ms', true",
		new:  "'lock_timeout', '10s', true",
		test: "test/stores/sqlservers TestRenewalsBesideALockedRow/postgres",
	})
	add(mutant{
		rule: "a row that is locked costs no other lock its renewal",
		file: "sqllock/renew.go",
		old:  `stillLocked, rest, err := s.renewEach(ctx, conn, grants, pending, errs)`,
		new:  `stillLocked, rest, err := pending, pending[:0], error(nil)`,
		test: "test/stores/sqlservers TestRenewalsBesideALockedRow/mariadb",
	})
	add(mutant{
		rule: "a lock whose row is locked costs no shared lock its renewal",
		file: "sqllock/renew.go",
		old:  `s.renewExclusive(ctx, statement.RenewAtOnce, grants, exclusive, errs)`,
		new:  `s.renewExclusive(ctx, statement.Renew, grants, exclusive, errs)`,
		test: "test/stores/sqlservers TestRenewalsInBothModesBesideALockedRow/mariadb",
	})
}

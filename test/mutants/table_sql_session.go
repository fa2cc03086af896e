package main

func init() {
	add(mutant{
		rule: "a renewal of a connection-bound lock never shortens it",
		file: "sqlsession/heldlock.go",
		old:  `deadline.After(h.deadline)`,
		new:  `ttl > 0`,
		test: "test/stores/sqlsession TestConformance/mariadb/session/never-shortens",
	})
	add(mutant{
		rule: "a lock of a connection is not handed over without asking the server",
		file: "sqlsession/sqlsession.go",
		old:  "driver.FencingStrong,\n",
		new:  "driver.FencingStrong,\n		TokenStep:     64,\n",
		test: "test/stores/sqlsession TestNoHandOverOfALostLock/mariadb/session",
	})
	add(mutant{
		rule: "no token is drawn in the second in which MariaDB was started",
		file: "sqlsession/mysql.go",
		old:  `uptime > 0 ||`,
		new:  `uptime >= 0 ||`,
		test: "test/stores/sqlsession TestTokensInSecondOfStart",
	})
	add(mutant{
		rule: "tokens rise although the server's clock was set back (MariaDB)",
		file: "sqlsession/mysql.go",
		old:  `if seen <= last {`,
		new:  `if last > seen+1<<62 {`,
		test: "test/stores/sqlsession TestTokensWithClockSetBack/mariadb/session",
	})
	add(mutant{
		rule: "a crash of PostgreSQL does not bring tokens back",
		file: "sqlsession/postgres.go",
		old:  `skipMargin = 2`,
		new:  `skipMargin = 0`,
		test: "test/stores/sqlsession TestTokensNotYetOnDisk",
	})
	add(mutant{
		rule: "a contender for a row of PostgreSQL does not wait for its holder",
		file: "sqlsession/postgres.go",
		old:  `AND set_config('lock_timeout', '50ms', true)`,
		new:  `AND set_config('lock_timeout', '0', true)`,
		test: "test/stores/sqlsession TestContendersDoNotWaitForHolder/postgres",
	})
	add(mutant{
		rule: "a transaction starts in every sql_mode",
		file: "sqlsession/mysql.go",
		old:  "sqldb.MySQLLimitIdle, `START TRANSACTION`",
		new:  "sqldb.MySQLLimitIdle, `BEGIN`",
		test: "test/stores/sqlsession TestSQLModes/mariadb/session",
	})
	add(mutant{
		rule: "a session is not taken for another one, nor a read-only server for the primary",
		file: "sqlsession/monitor.go",
		old:  `err == nil && id == c.id`,
		new:  `err == nil && id != ""`,
		test: "test/stores/sqlsession TestServerBecomesReadOnly/session",
	})
	add(mutant{
		rule: "the loss of a connection is reported to the holders of its locks",
		file: "sqlsession/conn.go",
		old:  `if h.phase == held && h.lost != nil {`,
		new:  `if h.phase == held && h.lost != nil && h.name == "" {`,
		test: "test/stores/sqlsession TestKilledConnection/mariadb/session",
	})
	add(mutant{
		rule: "a connection-bound lock expires",
		file: "sqlsession/monitor.go",
		old: `case !now.Before(h.deadline):
			s.expireLocked(h)
		case`,
		new: `case now.Before(time.Time{}):
			s.expireLocked(h)
		case`,
		test: "test/stores/sqlsession TestConformance/mariadb/session/expiry",
	})
	add(mutant{
		rule: "a connection-bound lock is released only with its token",
		file: "sqlsession/release.go",
		old:  `h.token != 0 && grant.Token != h.token`,
		new:  `h.token == 0`,
		test: "test/stores/sqlsession TestConformance/mariadb/session/release-token",
	})
	add(mutant{
		rule: "the session of a silent connection is ended before its lock counts as released",
		file: "sqlsession/conn.go",
		old:  `err == nil && exists {`,
		new:  `err != nil && exists {`,
		test: "test/stores/sqlsession TestReleaseOverSilentConnection/mariadb/session",
	})
	add(mutant{
		rule: "the session of another store, which has the same id, is not ended",
		file: "sqlsession/mysql.go",
		old:  "`SELECT IS_USED_LOCK('{fingerprint}') IS NOT NULL`",
		new:  "`SELECT COUNT(*) > 0 FROM information_schema.processlist WHERE id = {id}`",
		test: "test/stores/sqlsession TestSessionOfAnotherStoreIsNotEnded/session",
	})
	add(mutant{
		rule: "a lock on a lost connection has not ended before its session",
		file: "sqlsession/conn.go",
		old:  `s.work.Go(func() { s.endLost(c, locks) })`,
		new:  `for _, h := range locks { s.endLock(h, nil) }`,
		test: "test/stores/sqlsession TestReleaseInOutage/mariadb/session",
	})
	add(mutant{
		rule: "a lock that is being given up is not reported as held",
		file: "sqlsession/acquire.go",
		old: `case h.phase != held:
		return nil, false, h.changedLocked(), nil`,
		new: `case h.phase != held:
		return nil, false, nil, &driver.HeldError{Name: h.name}`,
		test: "test/stores/sqlsession TestAcquireAfterLossInOutage/mariadb/session",
	})
	add(mutant{
		rule: "an attempt is not undone before the server answers",
		file: "sqlsession/release.go",
		old:  `if grant.Token == 0 {`,
		new:  `if grant.Name == "" {`,
		test: "test/stores/sqlsession TestUndoInOutage/mariadb/forupdate",
	})
	add(mutant{
		rule: "the session of a lost connection that has a place is ended",
		file: "sqlsession/conn.go",
		old:  `len(locks) > 0 || c.placed.Load()`,
		new:  `len(locks) > 0`,
		test: "test/stores/sqlsession TestPlaceOverSilentConnection",
	})
	add(mutant{
		rule: "the late answer of a lost connection does not change what another one holds",
		file: "sqlsession/shared.go",
		old:  `if p.asking == c {`,
		new:  `if c != nil {`,
		test: "test/stores/sqlsession TestLateAnswerAboutAPlace",
	})
	add(mutant{
		rule: "a shared lock that fails is not taken for the share of another owner",
		file: "sqlsession/session.go",
		old:  `other != h && other.conn == c`,
		new:  `other != h && other.conn == nil`,
		test: "test/stores/sqlsession TestFailedSharedAttempt",
	})
	add(mutant{
		rule: "Close reports the loss of locks before it releases them",
		file: "sqlsession/conn.go",
		old: `		locks = s.disown(c)
		s.reportLosses(locks)
`,
		new: `		locks = s.disown(c)
`,
		test: "test/stores/sqlsession TestConformance",
	})
	add(mutant{
		rule: "Close ends no session that was given back to the pool",
		file: "sqlsession/conn.go",
		old:  "	c.returned.Store(true)\n",
		new:  ``,
		test: "test/stores/sqlsession TestCloseKillsNoConnectionOfThePool",
	})
}

package sqllock

import (
	"context"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/sqllock/internal/notify"
)

var postgresChecks = []check{
	{"server", postgresServer}, {"tables", postgresTables}, {"rights", checkRights},
	{"durability", postgresDurability}, {"replication", postgresReplicas}, {"clock", checkClock}, {"waiting", postgresWaiting},
}

func postgresServer(ctx context.Context, s *Store, f *finding) error {
	var version string
	var replica, readOnly bool
	err := s.ask(ctx, `SELECT current_setting('server_version'), pg_is_in_recovery(), current_setting('transaction_read_only')::boolean`,
		&version, &replica, &readOnly)
	f.ok("PostgreSQL " + version)
	switch {
	case replica:
		f.problem("", "PostgreSQL %s is a replica, which cannot be written. Connect to the primary server.", version)
	case readOnly:
		f.problem("", "PostgreSQL %s: default_transaction_read_only is on.", version)
	}
	return err
}

func postgresTables(ctx context.Context, s *Store, f *finding) error {
	if err := checkColumns(ctx, s.db, &s.tables); err != nil {
		return f.explain(s, err)
	}
	return checkTables(ctx, s, f)
}

func postgresDurability(ctx context.Context, s *Store, f *finding) error {
	var commit string
	var fsync bool
	err := s.ask(ctx, `SELECT current_setting('synchronous_commit'), current_setting('fsync')::boolean`, &commit, &fsync)
	f.ok(durable)
	switch {
	case !fsync:
		f.warning(driver.PromiseRestart, "fsync is off: a crash can damage the database. Set it to on.")
	case commit == "off":
		f.warning(driver.PromiseRestart, "synchronous_commit is off: a crash can undo the last locks and tokens. Set it to on.")
	}
	return err
}

func postgresReplicas(ctx context.Context, s *Store, f *finding) error {
	var replicas int
	var waits bool
	err := s.ask(ctx, `SELECT count(*), current_setting('synchronous_standby_names') <> '' AND current_setting('synchronous_commit') NOT IN ('off', 'local')
FROM pg_stat_replication`, &replicas, &waits)
	switch {
	case replicas == 0:
		f.ok("There is no replica.")
	case waits:
		f.ok("Commits wait for a replica.")
	default:
		f.warning("", "Connected replicas: %d, and no commit waits for one: a failover can lose the last locks and tokens. Set synchronous_standby_names.", replicas)
	}
	return err
}

// postgresWaiting listens as the poller does.
func postgresWaiting(ctx context.Context, s *Store, f *finding) error {
	f.ok("Waiters are notified by LISTEN on one connection.")
	if err := s.listener(func(string) {}).Try(ctx); err != nil {
		f.warning("", "Waiters poll, every %v to %v, since they cannot be notified: %v.", notify.MinInterval, notify.MaxInterval, err)
	}
	return nil
}

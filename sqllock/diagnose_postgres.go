package sqllock

import (
	"context"
	"sync"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/sqldb"
)

func postgresServer(ctx context.Context, s *Store) (driver.Finding, error) {
	const name = "server"
	var version string
	var replica, readOnly bool
	err := s.ask(ctx, `SELECT current_setting('server_version'), pg_is_in_recovery(), current_setting('transaction_read_only')::boolean`,
		&version, &replica, &readOnly)
	switch {
	case err != nil:
		return driver.Finding{}, err
	case replica:
		return sqldb.Problem(name, "PostgreSQL %s is a replica, which cannot be written. Connect to the primary server.", version), nil
	case readOnly:
		return sqldb.Problem(name, "PostgreSQL %s: default_transaction_read_only is on.", version), nil
	}
	return sqldb.Fine(name, "PostgreSQL "+version), nil
}

func postgresTables(ctx context.Context, s *Store) (driver.Finding, error) {
	if err := checkColumns(ctx, s.db, s.tables); err != nil {
		return s.explained("tables", err)
	}
	return checkFloor(ctx, s)
}

func postgresDurability(ctx context.Context, s *Store) (driver.Finding, error) {
	const name = "durability"
	var commit string
	var fsync bool
	if err := s.ask(ctx, `SELECT current_setting('synchronous_commit'), current_setting('fsync')::boolean`, &commit, &fsync); err != nil {
		return driver.Finding{}, err
	}
	switch {
	case !fsync:
		return sqldb.Breaking(driver.PromiseRestart, sqldb.Warning(name, "fsync is off: a crash can damage the database. Set it to on.")), nil
	case commit == "off":
		return sqldb.Breaking(driver.PromiseRestart, sqldb.Warning(name, "synchronous_commit is off: a crash can undo the last locks and tokens. Set it to on.")), nil
	}
	return sqldb.Fine(name, "What was confirmed survives a crash."), nil
}

func postgresReplicas(ctx context.Context, s *Store) (driver.Finding, error) {
	const name = "replication"
	var replicas int
	var waits bool
	err := s.ask(ctx, `SELECT count(*), current_setting('synchronous_standby_names') <> '' AND current_setting('synchronous_commit') NOT IN ('off', 'local')
FROM pg_stat_replication`, &replicas, &waits)
	switch {
	case err != nil:
		return driver.Finding{}, err
	case replicas > 0 && !waits:
		return sqldb.Warning(name, "Connected replicas: %d, and no commit waits for one: a failover can lose the last locks and tokens. Set synchronous_standby_names.", replicas), nil
	case replicas > 0:
		return sqldb.Fine(name, "Commits wait for a replica."), nil
	}
	return sqldb.Fine(name, "There is no replica."), nil
}

// listenLimit is how long the first echo may take.
const listenLimit = 2 * echoLimit

// postgresWaiting listens as those who wait do.
func postgresWaiting(ctx context.Context, s *Store) (driver.Finding, error) {
	const name = "waiting"
	ctx, cancel := context.WithTimeout(ctx, listenLimit)
	defer cancel()
	l := newListener(s, func(string) {})
	ended := make(chan error, 1)
	var work sync.WaitGroup
	work.Go(func() { ended <- l.listen(ctx) })
	defer work.Wait()
	defer cancel()
	select {
	case <-l.turned:
		return sqldb.Fine(name, "Waiters are notified by LISTEN on one connection."), nil
	case err := <-ended:
		return sqldb.Warning(name, "Waiters poll, every %v to %v, since they cannot be notified: %v.", minTempo, maxTempo, err), nil
	}
}

package sqllock

import (
	"context"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/sqldb"
)

var postgresChecks = []check{postgresServer, postgresTables, checkRights, postgresDurability, postgresReplicas, checkClock}

func postgresServer(ctx context.Context, s *Store) (driver.Finding, error) {
	const name = "server"
	var version string
	var replica, readOnly bool
	err := s.ask(ctx, `SELECT current_setting('server_version'), pg_is_in_recovery(), current_setting('transaction_read_only')::boolean`,
		&version, &replica, &readOnly)
	switch {
	case replica:
		return sqldb.Problem(name, "PostgreSQL %s is a replica, which cannot be written. Connect to the primary server.", version), err
	case readOnly:
		return sqldb.Problem(name, "PostgreSQL %s: default_transaction_read_only is on.", version), err
	}
	return sqldb.Fine(name, "PostgreSQL "+version), err
}

func postgresTables(ctx context.Context, s *Store) (driver.Finding, error) {
	if err := checkColumns(ctx, s.db, &s.tables); err != nil {
		return s.problem("tables", err)
	}
	return checkTables(ctx, s)
}

func postgresDurability(ctx context.Context, s *Store) (driver.Finding, error) {
	return durability.Postgres(ctx, s.db)
}

func postgresReplicas(ctx context.Context, s *Store) (driver.Finding, error) {
	const name = "replication"
	replicas, waits, err := sqldb.PostgresReplicas(ctx, s.db)
	switch {
	case replicas == 0:
		return sqldb.Fine(name, "There is no replica."), err
	case waits:
		return sqldb.Fine(name, "Commits wait for a replica."), err
	}
	return sqldb.Warning(name, "Connected replicas: %d, and no commit waits for one: a failover can lose the last locks and tokens. Set synchronous_standby_names.", replicas), err
}

// postgresWaiting listens as the poller does.
func postgresWaiting(ctx context.Context, s *Store) driver.Finding {
	if err := s.listener(func(string) {}).Try(ctx); err != nil {
		return sqldb.Warning("waiting", "Waiters poll, every %s, since they cannot be notified: %v.", pollInterval(), err)
	}
	return sqldb.Fine("waiting", "Waiters are notified by LISTEN on one connection.")
}

package sqllock

import (
	"context"
	"strings"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/sqldb"
)

var mysqlChecks = []check{mysqlServer, mysqlEngine, checkTables, checkRights, mysqlDurability, mysqlReplicas, checkClock}

func mysqlServer(ctx context.Context, s *Store) (driver.Finding, error) {
	var version string
	var writable bool
	err := s.ask(ctx, `SELECT VERSION(), `+sqldb.MySQLWritable, &version, &writable)
	if !writable {
		return sqldb.Problem("server", "%s is read-only, as a replica is. Connect to the primary server.", version), err
	}
	return sqldb.Fine("server", version), err
}

// mysqlEngine: in other engines than InnoDB a statement that fails halfway is
// not undone, and a crash can lose what was confirmed.
func mysqlEngine(ctx context.Context, s *Store) (driver.Finding, error) {
	var other []string
	rows, err := s.db.QueryContext(ctx, `SELECT table_name, COALESCE(engine, 'none') FROM information_schema.tables
WHERE table_schema = DATABASE() AND table_name IN (?, ?, ?)`, s.tables.Locks, s.tables.Queue, s.tables.Meta)
	err = sqldb.ScanAll(rows, err, func(scan func(...any) error) error {
		var table, engine string
		err := scan(&table, &engine)
		if !strings.EqualFold(engine, "InnoDB") {
			other = append(other, table+" ("+engine+")")
		}
		return err
	})
	if len(other) > 0 {
		return breaking(driver.PromiseRestart, sqldb.Problem("engine", "%s: the tables must be InnoDB, or a crash loses locks and tokens.", strings.Join(other, ", "))), err
	}
	return sqldb.Fine("engine", "InnoDB"), err
}

func mysqlDurability(ctx context.Context, s *Store) (driver.Finding, error) {
	return durability.MySQL(ctx, s.db)
}

func mysqlReplicas(ctx context.Context, s *Store) (driver.Finding, error) {
	const name = "replication"
	replicas, err := sqldb.MySQLReplicas(ctx, s.db)
	if replicas > 0 {
		return sqldb.Warning(name, "Connected replicas: %d. Unless each commit waits for one, a failover can lose the last locks and tokens.", replicas), err
	}
	return sqldb.Fine(name, "No replica is seen. One that is asynchronous could lose locks at a failover."), err
}

func mysqlWaiting(context.Context, *Store) driver.Finding {
	return sqldb.Fine("waiting", "One connection polls for all waiters, every "+pollInterval()+".")
}

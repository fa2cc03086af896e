package sqllock

import (
	"context"
	"strings"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/sqldb"
)

func mysqlServer(ctx context.Context, s *Store) (driver.Finding, error) {
	const name = "server"
	var version string
	var readOnly bool
	if err := s.ask(ctx, `SELECT VERSION(), @@global.read_only`, &version, &readOnly); err != nil {
		return driver.Finding{}, err
	}
	if readOnly {
		return sqldb.Problem(name, "%s is read-only, as a replica is. Connect to the primary server.", version), nil
	}
	return sqldb.Fine(name, version), nil
}

// mysqlEngine: in other engines than InnoDB a statement that fails halfway is
// not undone, and a crash can lose what was confirmed.
func mysqlEngine(ctx context.Context, s *Store) (driver.Finding, error) {
	const name = "engine"
	rows, err := s.db.QueryContext(ctx, `SELECT table_name, COALESCE(engine, 'none') FROM information_schema.tables
WHERE table_schema = DATABASE() AND table_name IN (?, ?, ?)`, s.tables.Locks, s.tables.Queue, s.tables.Meta)
	if err != nil {
		return driver.Finding{}, err
	}
	defer rows.Close()
	var other []string
	for rows.Next() {
		var table, engine string
		if err := rows.Scan(&table, &engine); err != nil {
			return driver.Finding{}, err
		}
		if !strings.EqualFold(engine, "InnoDB") {
			other = append(other, table+" ("+engine+")")
		}
	}
	if len(other) > 0 {
		return sqldb.Breaking(driver.PromiseRestart, sqldb.Problem(name, "%s: the tables must be InnoDB, or a crash loses locks and tokens.", strings.Join(other, ", "))), rows.Err()
	}
	return sqldb.Fine(name, "InnoDB"), rows.Err()
}

func mysqlDurability(ctx context.Context, s *Store) (driver.Finding, error) {
	const name = "durability"
	var flush, sync int
	var logs bool
	if err := s.ask(ctx, `SELECT @@innodb_flush_log_at_trx_commit, @@log_bin, @@sync_binlog`, &flush, &logs, &sync); err != nil {
		return driver.Finding{}, err
	}
	switch {
	case flush != 1:
		return sqldb.Breaking(driver.PromiseRestart, sqldb.Warning(name, "innodb_flush_log_at_trx_commit is %d: a crash can undo the last locks and tokens. Set it to 1.", flush)), nil
	case logs && sync != 1:
		return sqldb.Warning(name, "sync_binlog is %d: a crash can leave replicas without the last locks and tokens. Set it to 1.", sync), nil
	}
	return sqldb.Fine(name, "What was confirmed survives a crash."), nil
}

// mysqlReplicas sees replicas only if the user may see the connections of
// others.
func mysqlReplicas(ctx context.Context, s *Store) (driver.Finding, error) {
	const name = "replication"
	var replicas int
	if err := s.ask(ctx, `SELECT COUNT(*) FROM information_schema.processlist WHERE command LIKE 'Binlog Dump%'`, &replicas); err != nil {
		return driver.Finding{}, err
	}
	if replicas > 0 {
		return sqldb.Warning(name, "Connected replicas: %d. Unless each commit waits for one, a failover can lose the last locks and tokens.", replicas), nil
	}
	return sqldb.Fine(name, "No replica is seen. One that is asynchronous could lose locks at a failover."), nil
}

func mysqlWaiting(context.Context, *Store) (driver.Finding, error) {
	return sqldb.Fine("waiting", "One connection polls for all waiters, every "+minTempo.String()+" to "+maxTempo.String()+"."), nil
}

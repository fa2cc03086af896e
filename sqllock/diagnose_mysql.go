package sqllock

import (
	"context"
	"fmt"
	"strings"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/sqllock/internal/notify"
)

var mysqlChecks = []check{
	{"server", mysqlServer}, {"engine", mysqlEngine}, {"tables", checkTables}, {"rights", checkRights},
	{"durability", mysqlDurability}, {"replication", mysqlReplicas}, {"clock", checkClock}, {"waiting", mysqlWaiting},
}

func mysqlServer(ctx context.Context, s *Store, f *finding) error {
	var version string
	var readOnly bool
	err := s.ask(ctx, `SELECT VERSION(), @@global.read_only`, &version, &readOnly)
	f.ok(version)
	if readOnly {
		f.problem("", "%s is read-only, as a replica is. Connect to the primary server.", version)
	}
	return err
}

// mysqlEngine: in other engines than InnoDB a statement that fails halfway is
// not undone, and a crash can lose what was confirmed.
func mysqlEngine(ctx context.Context, s *Store, f *finding) error {
	rows, err := s.db.QueryContext(ctx, `SELECT table_name, COALESCE(engine, 'none') FROM information_schema.tables
WHERE table_schema = DATABASE() AND table_name IN (?, ?, ?)`, s.tables.Locks, s.tables.Queue, s.tables.Meta)
	if err != nil {
		return err
	}
	defer rows.Close()
	var other []string
	for rows.Next() {
		var table, engine string
		if err := rows.Scan(&table, &engine); err != nil {
			return err
		}
		if !strings.EqualFold(engine, "InnoDB") {
			other = append(other, table+" ("+engine+")")
		}
	}
	f.ok("InnoDB")
	if len(other) > 0 {
		f.problem(driver.PromiseRestart, "%s: the tables must be InnoDB, or a crash loses locks and tokens.", strings.Join(other, ", "))
	}
	return rows.Err()
}

func mysqlDurability(ctx context.Context, s *Store, f *finding) error {
	var flush, sync int
	var logs bool
	err := s.ask(ctx, `SELECT @@innodb_flush_log_at_trx_commit, @@log_bin, @@sync_binlog`, &flush, &logs, &sync)
	f.ok(durable)
	switch {
	case flush != 1:
		f.warning(driver.PromiseRestart, "innodb_flush_log_at_trx_commit is %d: a crash can undo the last locks and tokens. Set it to 1.", flush)
	case logs && sync != 1:
		f.warning("", "sync_binlog is %d: a crash can leave replicas without the last locks and tokens. Set it to 1.", sync)
	}
	return err
}

// mysqlReplicas sees replicas only if the user may see the connections of other users.
func mysqlReplicas(ctx context.Context, s *Store, f *finding) error {
	var replicas int
	err := s.ask(ctx, `SELECT COUNT(*) FROM information_schema.processlist WHERE command LIKE 'Binlog Dump%'`, &replicas)
	f.ok("No replica is seen. One that is asynchronous could lose locks at a failover.")
	if replicas > 0 {
		f.warning("", "Connected replicas: %d. Unless each commit waits for one, a failover can lose the last locks and tokens.", replicas)
	}
	return err
}

func mysqlWaiting(_ context.Context, _ *Store, f *finding) error {
	f.ok(fmt.Sprintf("One connection polls for all waiters, every %v to %v.", notify.MinInterval, notify.MaxInterval))
	return nil
}

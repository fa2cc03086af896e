package sqldb

import (
	"context"
	"fmt"

	"github.com/dlock-go/dlock/driver"
)

// Fine returns a finding that nothing is wrong.
func Fine(check, message string) driver.Finding {
	return driver.Finding{Check: check, Level: driver.LevelOK, Message: message}
}

// Warning returns a finding of that level.
func Warning(check, format string, args ...any) driver.Finding {
	return driver.Finding{Check: check, Level: driver.LevelWarning, Message: fmt.Sprintf(format, args...)}
}

// Problem returns a finding of that level.
func Problem(check, format string, args ...any) driver.Finding {
	return driver.Finding{Check: check, Level: driver.LevelProblem, Message: fmt.Sprintf(format, args...)}
}

// Breaking returns a finding about a promise that the store does not keep.
func Breaking(promise driver.Promise, f driver.Finding) driver.Finding {
	f.Breaks = promise
	return f
}

// Durability is what a store says about a crash of its server.
type Durability struct {
	Fine   string         // if it loses nothing
	Lost   string         // what it can lose otherwise
	Breaks driver.Promise // what the store does not keep then; may be empty
}

const durability = "durability"

// MySQL examines the settings of a server.
func (d Durability) MySQL(ctx context.Context, on Queryer) (driver.Finding, error) {
	var flush, sync int
	var logs bool
	err := on.QueryRowContext(ctx, `SELECT @@innodb_flush_log_at_trx_commit, @@log_bin, @@sync_binlog`).Scan(&flush, &logs, &sync)
	switch {
	case err == nil && flush != 1:
		return Breaking(d.Breaks, Warning(durability, "innodb_flush_log_at_trx_commit is %d: a crash can undo %s. Set it to 1.", flush, d.Lost)), nil
	case err == nil && logs && sync != 1:
		return Warning(durability, "sync_binlog is %d: a crash can leave replicas without %s. Set it to 1.", sync, d.Lost), nil
	}
	return Fine(durability, d.Fine), err
}

// Postgres examines the settings of a server.
func (d Durability) Postgres(ctx context.Context, on Queryer) (driver.Finding, error) {
	var commit string
	var fsync bool
	err := on.QueryRowContext(ctx, `SELECT current_setting('synchronous_commit'), current_setting('fsync')::boolean`).Scan(&commit, &fsync)
	switch {
	case err == nil && !fsync:
		return Breaking(d.Breaks, Warning(durability, "fsync is off: a crash can damage the database. Set it to on.")), nil
	case commit == "off":
		return Breaking(d.Breaks, Warning(durability, "synchronous_commit is off: a crash can undo %s. Set it to on.", d.Lost)), nil
	}
	return Fine(durability, d.Fine), err
}

// MySQLReplicas counts the replicas, if the user may see the connections of other users.
func MySQLReplicas(ctx context.Context, on Queryer) (replicas int, err error) {
	err = on.QueryRowContext(ctx, `SELECT COUNT(*) FROM information_schema.processlist WHERE command LIKE 'Binlog Dump%'`).Scan(&replicas)
	return replicas, err
}

// PostgresReplicas counts the replicas, and reports whether each commit waits for one.
func PostgresReplicas(ctx context.Context, on Queryer) (replicas int, waits bool, err error) {
	err = on.QueryRowContext(ctx, `SELECT count(*), current_setting('synchronous_standby_names') <> '' AND current_setting('synchronous_commit') NOT IN ('off', 'local')
FROM pg_stat_replication`).Scan(&replicas, &waits)
	return replicas, waits, err
}

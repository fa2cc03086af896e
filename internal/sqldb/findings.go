package sqldb

import (
	"cmp"
	"context"
	"errors"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/finding"
)

// MySQLServer examines which server it is, and whether it can be written to.
func MySQLServer(ctx context.Context, on Queryer) (driver.Finding, error) {
	var version string
	var writable bool
	err := on.QueryRowContext(ctx, `SELECT VERSION(), `+MySQLWritable).Scan(&version, &writable)
	if !writable {
		return finding.Problem("server", "%s is read-only, as a replica is. Connect to the primary server.", version), err
	}
	return finding.OK("server", "%s", version), err
}

// PostgresServer examines which server it is, and whether it can be written to.
func PostgresServer(ctx context.Context, on Queryer) (driver.Finding, error) {
	var version string
	err := on.QueryRowContext(ctx, `SELECT current_setting('server_version')`).Scan(&version)
	why := CheckPostgres(ctx, on)
	if errors.Is(why, ErrReadOnly) {
		return finding.Problem("server", "PostgreSQL %s: %v.", version, why), err
	}
	return finding.OK("server", "PostgreSQL %s", version), cmp.Or(err, why)
}

// Durability is what a store says about a crash of its server, and about a failover.
type Durability struct {
	Fine     string         // if a crash loses nothing
	Lost     string         // what it can lose otherwise
	Breaks   driver.Promise // what the store does not keep then; may be empty
	Failover string         // what every failover does; may be empty
}

const durability = "durability"

// MySQL examines the settings of a server.
func (d Durability) MySQL(ctx context.Context, on Queryer) (driver.Finding, error) {
	var flush, sync int
	var logs bool
	err := on.QueryRowContext(ctx, `SELECT @@innodb_flush_log_at_trx_commit, @@log_bin, @@sync_binlog`).Scan(&flush, &logs, &sync)
	switch {
	case err == nil && flush != 1:
		return finding.Breaking(d.Breaks, finding.Warning(durability, "innodb_flush_log_at_trx_commit is %d: a crash can undo %s. Set it to 1.", flush, d.Lost)), nil
	case err == nil && logs && sync != 1:
		return finding.Warning(durability, "sync_binlog is %d: a crash can leave replicas without %s. Set it to 1.", sync, d.Lost), nil
	}
	return finding.OK(durability, "%s", d.Fine), err
}

// Postgres examines the settings of a server.
func (d Durability) Postgres(ctx context.Context, on Queryer) (driver.Finding, error) {
	var commit string
	var fsync bool
	err := on.QueryRowContext(ctx, `SELECT current_setting('synchronous_commit'), current_setting('fsync')::boolean`).Scan(&commit, &fsync)
	switch {
	case err == nil && !fsync:
		return finding.Breaking(d.Breaks, finding.Warning(durability, "fsync is off: a crash can damage the database. Set it to on.")), nil
	case commit == "off":
		return finding.Breaking(d.Breaks, finding.Warning(durability, "synchronous_commit is off: a crash can undo %s. Set it to on.", d.Lost)), nil
	}
	return finding.OK(durability, "%s", d.Fine), err
}

// MySQLReplicas says what a failover to a replica means. It sees replicas if the user may see the
// connections of other users, and does not know whether commits wait for one.
func (d Durability) MySQLReplicas(ctx context.Context, on Queryer) (driver.Finding, error) {
	return d.replicas(ctx, on, "semi-synchronous replication", `SELECT COUNT(*), FALSE FROM information_schema.processlist WHERE command LIKE 'Binlog Dump%'`)
}

// PostgresReplicas says what a failover to a replica means.
func (d Durability) PostgresReplicas(ctx context.Context, on Queryer) (driver.Finding, error) {
	return d.replicas(ctx, on, "synchronous_standby_names", `SELECT count(*), current_setting('synchronous_standby_names') <> '' AND current_setting('synchronous_commit') NOT IN ('off', 'local')
FROM pg_stat_replication`)
}

// replicas runs query, which returns the number of replicas and whether commits wait for one. Its
// warning names the remedy.
func (d Durability) replicas(ctx context.Context, on Queryer, remedy, query string) (driver.Finding, error) {
	const name = "replication"
	var replicas int
	var waits bool
	err := on.QueryRowContext(ctx, query).Scan(&replicas, &waits)
	switch {
	case replicas == 0:
		return finding.OK(name, "No replica is seen. %sA failover to one that is asynchronous can lose %s.", d.Failover, d.Lost), err
	case waits:
		return finding.OK(name, "Connected replicas: %d. %sCommits wait for one.", replicas, d.Failover), err
	}
	return finding.Warning(name, "Connected replicas: %d. %sUnless each commit waits for one (%s), a failover can lose %s.",
		replicas, d.Failover, remedy, d.Lost), err
}

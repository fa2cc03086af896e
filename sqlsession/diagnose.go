package sqlsession

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/sqldb"
)

// Diagnose implements driver.Diagnoser.
func (s *Store) Diagnose(ctx context.Context) ([]driver.Finding, error) {
	const op = "diagnose"
	if err := s.startCall(ctx, op); err != nil {
		return nil, err
	}
	defer s.work.Done()
	findings, err := s.serverFindings(ctx)
	if err != nil {
		return nil, s.explain(ctx, op, err)
	}
	return append(findings, s.poolFinding(), s.poolerFinding()), nil
}

func (s *Store) serverFindings(ctx context.Context) (findings []driver.Finding, err error) {
	if s.scheme == ForUpdate {
		err := s.onPool(ctx, func(conn *sql.Conn) (err error) {
			findings, err = s.dialect.diagnose(ctx, conn)
			return err
		})
		return findings, err
	}
	c, err := s.enterShared(ctx)
	if err != nil {
		return nil, err
	}
	err = s.detached(ctx, c, func() error {
		return s.query(c, func(ctx context.Context) (err error) {
			findings, err = s.dialect.diagnose(ctx, c.raw)
			return err
		})
	})
	if err != nil { // the job may still write findings
		return nil, err
	}
	return findings, nil
}

const poolerDanger = "A pooler that uses another session of the server for later statements frees locks that their holders still trust: connect to the server itself."

var tokenDurability = sqldb.Durability{Fine: "Tokens go on rising after a crash.", Lost: "the last tokens, which may be granted again"}

func readOnlyFinding(yes bool) driver.Finding {
	const name = "read_only"
	if yes {
		return sqldb.Problem(name, "The server is read-only, as a replica is: its locks exclude no process elsewhere. Connect to the primary.")
	}
	return sqldb.Fine(name, "The server can be written to.")
}

// replicaFinding says what a failover to a replica means. waits reports whether each commit
// waits for a replica.
func replicaFinding(replicas int, waits bool) driver.Finding {
	const name, ends = "replication", "A failover to a replica ends all locks at once"
	switch {
	case replicas == 0:
		return sqldb.Fine(name, "No replica is connected. "+ends+", and can lose the last tokens if the replica is asynchronous.")
	case waits:
		return sqldb.Fine(name, fmt.Sprintf("Connected replicas: %d, and commits wait for one. %s.", replicas, ends))
	}
	return sqldb.Warning(name, "Connected replicas: %d. %s, and can lose the last tokens unless each commit waits for a replica.", replicas, ends)
}

// poolerFinding says what a pooler that was not noticed would do.
func (s *Store) poolerFinding() driver.Finding {
	const name = "pooler"
	switch {
	case !s.dialect.findsPoolers:
		return sqldb.Fine(name, "The store does not notice a proxy, such as ProxySQL or MaxScale. "+poolerDanger)
	case !s.poolerChecked:
		return sqldb.Warning(name, "With a single connection the store cannot notice a pooler, such as PgBouncer in transaction mode. %s", poolerDanger)
	}
	return sqldb.Fine(name, "The store found no pooler that shares sessions when it was opened. "+poolerDanger)
}

// poolFinding says how many connections there are for locks.
func (s *Store) poolFinding() driver.Finding {
	stats := s.db.Stats()
	s.mu.Lock()
	conns := len(s.conns)
	s.mu.Unlock()
	limit := "no limit"
	if stats.MaxOpenConnections > 0 {
		limit = fmt.Sprintf("a limit of %d", stats.MaxOpenConnections)
	}
	message := fmt.Sprintf("Connections that hold locks: %d. Connections in use: %d, with %s.", conns, stats.InUse, limit)
	switch {
	case stats.MaxOpenConnections == 1 && s.scheme == Session:
		return sqldb.Warning("pool", "%s The store has the only connection: the application needs another pool.", message)
	case stats.MaxOpenConnections > 0 && s.scheme == ForUpdate:
		return sqldb.Warning("pool", "%s Every lock needs a connection of its own: with all of them in use, further attempts fail.", message)
	}
	return sqldb.Fine("pool", message)
}

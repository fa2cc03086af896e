package sqlsession

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/finding"
	"github.com/dlock-go/dlock/internal/sqldb"
)

// Diagnose implements driver.Diagnoser.
func (s *Store) Diagnose(ctx context.Context) ([]driver.Finding, error) {
	const op = "diagnose"
	if err := s.startCall(ctx, op); err != nil {
		return nil, err
	}
	defer s.work.Done()
	var findings []driver.Finding
	onConn := func(ctx context.Context, conn *sql.Conn) error {
		for _, check := range s.dialect.checks {
			f, err := check(ctx, conn)
			if err != nil {
				return err
			}
			findings = append(findings, f)
		}
		return nil
	}
	var err error
	if s.scheme == ForUpdate {
		err = s.onPool(ctx, func(conn *sql.Conn) error { return onConn(ctx, conn) })
	} else {
		err = s.onMain(ctx, func(c *conn) error {
			return s.query(c, func(ctx context.Context) error { return onConn(ctx, c.raw) })
		})
	}
	if err != nil { // the job may still write findings
		return nil, s.explain(ctx, op, err)
	}
	return append(findings, s.poolFinding(), s.poolerFinding()), nil
}

const poolerDanger = "A pooler that uses another session of the server for later statements frees locks that their holders still trust: connect to the server itself."

var tokenDurability = sqldb.Durability{Fine: "Tokens go on rising after a crash.", Lost: "the last tokens, which may be granted again",
	Failover: "A failover to a replica ends all locks at once. "}

// poolerFinding says what a pooler that was not noticed would do.
func (s *Store) poolerFinding() driver.Finding {
	const name = "pooler"
	switch {
	case !s.dialect.findsPoolers:
		return finding.OK(name, "The store does not notice a proxy, such as ProxySQL or MaxScale. %s", poolerDanger)
	case !s.poolerChecked:
		return finding.Warning(name, "With a single connection the store cannot notice a pooler, such as PgBouncer in transaction mode. %s", poolerDanger)
	}
	return finding.OK(name, "The store found no pooler that shares sessions when it was opened. %s", poolerDanger)
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
		return finding.Warning("pool", "%s The store has the only connection: the application needs another pool.", message)
	case stats.MaxOpenConnections > 0 && s.scheme == ForUpdate:
		return finding.Warning("pool", "%s Every lock needs a connection of its own: with all of them in use, further attempts fail.", message)
	}
	return finding.OK("pool", "%s", message)
}

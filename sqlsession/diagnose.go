package sqlsession

import (
	"context"
	"fmt"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/sqldb"
)

// Diagnose implements driver.Diagnoser.
func (s *Store) Diagnose(ctx context.Context) (findings []driver.Finding, err error) {
	const op = "diagnose"
	if err := s.begin(ctx, op); err != nil {
		return nil, err
	}
	defer s.work.Done()
	if s.scheme == ForUpdate {
		conn, err := s.connection(ctx)
		if err != nil {
			return nil, s.fail(ctx, op, err)
		}
		defer newConn(conn).giveBack()
		if findings, err = s.dialect.diagnose(ctx, conn); err != nil {
			return nil, s.fail(ctx, op, err)
		}
		return append(findings, s.connectionFindings()...), nil
	}
	c, err := s.sharedConn(ctx)
	if err == nil {
		err = c.enter(ctx)
	}
	if err != nil {
		return nil, s.fail(ctx, op, err)
	}
	var found []driver.Finding // not findings, which the caller may have by then
	if err := s.perform(ctx, c, func() error {
		return s.ask(c, func(ctx context.Context) (err error) {
			found, err = s.dialect.diagnose(ctx, c.raw)
			return err
		})
	}); err != nil {
		return nil, s.fail(ctx, op, err)
	}
	return append(found, s.connectionFindings()...), nil
}

const (
	durableTokens = "Tokens go on rising after a crash."
	poolerDanger  = "One that uses other sessions of the server for later statements frees locks whose holders still believe in them: connect to the server itself."
)

func readOnlyFinding(yes bool) driver.Finding {
	const name = "read_only"
	if yes {
		return sqldb.Problem(name, "The server is read-only, as a replica is: its locks keep nobody out elsewhere. Connect to the primary.")
	}
	return sqldb.Fine(name, "The server can be written to.")
}

// replicaFinding says what a failover to one of so many replicas means, for one of
// which each commit may wait.
func replicaFinding(replicas int, waits bool) driver.Finding {
	const name, ends = "replication", "A failover to one ends all locks at once"
	switch {
	case replicas == 0:
		return sqldb.Fine(name, "No replica is seen. "+ends+", and if it is asynchronous can lose the last tokens.")
	case waits:
		return sqldb.Fine(name, fmt.Sprintf("Connected replicas: %d, and commits wait for one. %s.", replicas, ends))
	}
	return sqldb.Warning(name, "Connected replicas: %d. %s, and unless each commit waits for one it can lose the last tokens.", replicas, ends)
}

// connectionFindings are about what is between this program and the server.
func (s *Store) connectionFindings() []driver.Finding {
	return []driver.Finding{s.poolFinding(), s.poolerFinding()}
}

// poolerFinding says what a pooler that was not noticed would do.
func (s *Store) poolerFinding() driver.Finding {
	const name = "pooler"
	switch {
	case s.dialect.pooler == nil:
		return sqldb.Fine(name, "A proxy, such as ProxySQL or MaxScale, is not noticed. "+poolerDanger)
	case !s.sought:
		return sqldb.Warning(name, "With a single connection it cannot be told whether there is one, such as PgBouncer in transaction mode. %s", poolerDanger)
	}
	return sqldb.Fine(name, "No pooler that shares sessions was seen when the store was opened. "+poolerDanger)
}

// poolFinding says how many connections there are for locks.
func (s *Store) poolFinding() driver.Finding {
	stats := s.db.Stats()
	s.mu.Lock()
	conns := len(s.conns)
	s.mu.Unlock()
	finding := driver.Finding{Check: "pool", Level: driver.LevelOK}
	limit := "no limit"
	if stats.MaxOpenConnections > 0 {
		limit = fmt.Sprintf("a limit of %d", stats.MaxOpenConnections)
	}
	finding.Message = fmt.Sprintf("Connections that hold locks: %d. Connections in use: %d, with %s.", conns, stats.InUse, limit)
	switch {
	case stats.MaxOpenConnections == 1 && s.scheme == Session:
		finding.Level = driver.LevelWarning
		finding.Message += " The store has the only connection: the application needs another pool."
	case stats.MaxOpenConnections > 0 && s.scheme == ForUpdate:
		finding.Level = driver.LevelWarning
		finding.Message += " Every lock needs a connection of its own: with all of them in use, further attempts fail."
	}
	return finding
}

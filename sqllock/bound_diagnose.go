package sqllock

import (
	"context"
	"fmt"

	"github.com/dlock-go/dlock/driver"
)

// Diagnose implements driver.Diagnoser.
func (s *BoundStore) Diagnose(ctx context.Context) (findings []driver.Finding, err error) {
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
		defer newLink(conn).giveBack()
		if findings, err = s.dialect.diagnoseBound(ctx, conn); err != nil {
			return nil, s.fail(ctx, op, err)
		}
		return append(findings, s.connectionFindings()...), nil
	}
	l, err := s.sharedLink(ctx)
	if err == nil {
		err = l.enter(ctx)
	}
	if err != nil {
		return nil, s.fail(ctx, op, err)
	}
	var found []driver.Finding // not findings, which the caller may have by then
	if err := s.perform(ctx, l, func() error {
		return s.ask(l, func(ctx context.Context) (err error) {
			found, err = s.dialect.diagnoseBound(ctx, l.conn)
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

func boundReadOnly(yes bool) driver.Finding {
	const name = "read_only"
	if yes {
		return problem(name, "The server is read-only, as a replica is: its locks keep nobody out elsewhere. Connect to the primary.")
	}
	return fine(name, "The server can be written to.")
}

// boundReplicas says what a failover to one of so many replicas means, for one of
// which each commit may wait.
func boundReplicas(replicas int, waits bool) driver.Finding {
	const name, ends = "replication", "A failover to one ends all locks at once"
	switch {
	case replicas == 0:
		return fine(name, "No replica is seen. "+ends+", and if it is asynchronous can lose the last tokens.")
	case waits:
		return fine(name, fmt.Sprintf("Connected replicas: %d, and commits wait for one. %s.", replicas, ends))
	}
	return warning(name, "Connected replicas: %d. %s, and unless each commit waits for one it can lose the last tokens.", replicas, ends)
}

// connectionFindings are about what is between this program and the server.
func (s *BoundStore) connectionFindings() []driver.Finding {
	return []driver.Finding{s.poolFinding(), s.poolerFinding()}
}

// poolerFinding says what a pooler that was not noticed would do.
func (s *BoundStore) poolerFinding() driver.Finding {
	const name = "pooler"
	switch _, sought := s.dialect.(poolerFinder); {
	case !sought:
		return fine(name, "A proxy, such as ProxySQL or MaxScale, is not noticed. "+poolerDanger)
	case !s.sought:
		return warning(name, "With a single connection it cannot be told whether there is one, such as PgBouncer in transaction mode. %s", poolerDanger)
	}
	return fine(name, "No pooler that shares sessions was seen when the store was opened. "+poolerDanger)
}

// poolFinding says how many connections there are for locks.
func (s *BoundStore) poolFinding() driver.Finding {
	stats := s.db.Stats()
	s.mu.Lock()
	links := len(s.links)
	s.mu.Unlock()
	finding := driver.Finding{Check: "pool", Level: driver.LevelOK}
	limit := "no limit"
	if stats.MaxOpenConnections > 0 {
		limit = fmt.Sprintf("a limit of %d", stats.MaxOpenConnections)
	}
	finding.Message = fmt.Sprintf("Connections that hold locks: %d. Connections in use: %d, with %s.", links, stats.InUse, limit)
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

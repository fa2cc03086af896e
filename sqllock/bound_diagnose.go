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
		return append(findings, s.poolFinding()), nil
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
	return append(found, s.poolFinding()), nil
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
	finding.Message = fmt.Sprintf("%d connections hold locks, %d are in use in all, with %s", links, stats.InUse, limit)
	switch {
	case stats.MaxOpenConnections == 1 && s.scheme == Session:
		finding.Level = driver.LevelWarning
		finding.Message += ". The store has the only connection: the application needs another pool."
	case stats.MaxOpenConnections > 0 && s.scheme == ForUpdate:
		finding.Level = driver.LevelWarning
		finding.Message += ". Every lock needs a connection of its own: with all of them in use, further attempts fail."
	}
	return finding
}

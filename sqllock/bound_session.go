package sqllock

import (
	"context"
	"database/sql"
	"errors"

	"github.com/dlock-go/dlock/driver"
)

// sharedLink is the link that all locks of Session are on. It is opened again
// when it was lost, by one caller for all.
func (s *BoundStore) sharedLink(ctx context.Context) (*link, error) {
	if l := s.currentLink(); l != nil {
		return l, nil
	}
	ctx, cancel := s.untilClosed(ctx)
	defer cancel()
	select {
	case s.opening <- struct{}{}:
		defer func() { <-s.opening }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if l := s.currentLink(); l != nil {
		return l, nil
	}
	conn, err := s.connection(ctx)
	if err != nil {
		return nil, err
	}
	l, err := s.newShared(ctx, conn)
	if err == nil {
		err = s.adopt(l)
	}
	if err != nil {
		newLink(conn).discard()
		return nil, err
	}
	s.mu.Lock()
	s.shared = l
	s.mu.Unlock()
	return l, nil
}

func (s *BoundStore) currentLink() *link {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.shared == nil || s.shared.dead.Load() {
		return nil
	}
	return s.shared
}

// newShared prepares a connection for holding locks.
func (s *BoundStore) newShared(ctx context.Context, conn *sql.Conn) (*link, error) {
	l := newLink(conn)
	if err := execAll(ctx, conn, s.server.settings); err != nil {
		return nil, err
	}
	err := conn.QueryRowContext(ctx, s.server.identity).Scan(&l.id)
	if err == nil && l.id == readOnlySession {
		err = errReadOnly
	}
	if err != nil {
		return nil, err
	}
	if l.acquire, err = conn.PrepareContext(ctx, s.server.acquire); err != nil {
		return nil, err
	}
	if l.draw, err = conn.PrepareContext(ctx, s.server.draw); err != nil {
		return nil, err
	}
	if l.release, err = conn.PrepareContext(ctx, s.server.release); err != nil {
		return nil, err
	}
	if l.look, err = conn.PrepareContext(ctx, s.server.look); err != nil {
		return nil, err
	}
	l.shift, err = s.dialect.calibrate(ctx, conn, s.server)
	return l, err
}

// takeSession asks for a lock of the server's own kind.
func (s *BoundStore) takeSession(ctx context.Context, b *bond) error {
	l, err := s.sharedLink(ctx)
	if err == nil && !s.bind(b, l) {
		err = errLinkGone
	}
	if err == nil {
		err = l.enter(ctx)
	}
	if err != nil {
		s.forget(b)
		return err
	}
	return s.perform(ctx, l, func() error {
		token, err := l.take(b.key.mark)
		switch {
		case errors.Is(err, errReadOnly): // another connection may lead to another server
			s.lose(l)
		case err != nil:
			s.undo(l, b.key)
		case token == 0:
			err = &driver.HeldError{Name: b.name}
		case ctx.Err() != nil: // nobody waits for it, or may come to release it
			s.undo(l, b.key)
			err = context.Cause(ctx)
		case !s.hold(b, l, token):
			err = errLinkGone
		default:
			return nil
		}
		s.forget(b)
		return err
	})
}

// uncancelled is the context of the two statements that have to be fast. With one
// that can end, drivers and database/sql switch between goroutines several times
// for each statement, which costs a third of its time. If the server does not
// answer the link counts as lost all the same, and the statement, whose answer
// nobody waits for any more, is left to the time limits of the network.
var uncancelled = context.Background()

// take makes the attempt; a token of zero is a refusal.
func (l *link) take(mark any) (token uint64, err error) {
	return l.drawn(func() *sql.Row { return l.acquire.QueryRowContext(uncancelled, mark) })
}

// token draws a token for a lock that the link has already.
func (l *link) token() (token uint64, err error) {
	return l.drawn(func() *sql.Row { return l.draw.QueryRowContext(uncancelled) })
}

// drawn sends a statement that answers with a token.
func (l *link) drawn(send func() *sql.Row) (token uint64, err error) {
	var answer sql.NullInt64
	err = l.call(func(context.Context) error { return send().Scan(&answer) })
	switch {
	case err != nil:
		return 0, err
	case answer.Int64 == readOnlyToken:
		return 0, errReadOnly
	case answer.Int64 == 0:
		return 0, nil
	}
	return uint64(answer.Int64) + l.shift, nil
}

// undo gives up what an attempt that failed may have taken. A link on which that
// is not possible either is gone, and what it took goes with it.
func (s *BoundStore) undo(l *link, key lockKey) {
	if !s.untieSession(l, key) {
		s.lose(l)
	}
}

// untieSession gives up a lock. Whether the session is the one that had it is
// for the keeper to find out.
func (s *BoundStore) untieSession(l *link, key lockKey) bool {
	err := l.call(func(context.Context) error {
		_, err := l.release.ExecContext(uncancelled, key.mark)
		return err
	})
	return err == nil
}

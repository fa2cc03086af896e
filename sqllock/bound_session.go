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
	return s.shared
}

// newShared prepares a connection for holding locks.
func (s *BoundStore) newShared(ctx context.Context, conn *sql.Conn) (*link, error) {
	l := newLink(conn)
	if err := execAll(ctx, conn, s.server.settings); err != nil {
		return nil, err
	}
	err := conn.QueryRowContext(ctx, s.server.identity).Scan(&l.id)
	if err != nil {
		return nil, err
	}
	if l.acquire, err = conn.PrepareContext(ctx, s.server.acquire); err != nil {
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
		case err != nil:
			s.undo(l, b.key, err)
		case token == 0:
			err = &driver.HeldError{Name: b.name}
		case !s.hold(b, l, token):
			err = errLinkGone
		default:
			return nil
		}
		s.forget(b)
		return err
	})
}

var errOtherSession = errors.New("the server has put the connection on another session")

// take makes the attempt; a token of zero is a refusal.
func (l *link) take(mark any) (token uint64, err error) {
	var drawn sql.NullInt64
	var id string
	err = l.call(func(ctx context.Context) error {
		return l.acquire.QueryRowContext(ctx, mark).Scan(&drawn, &id)
	})
	switch {
	case err != nil:
		return 0, err
	case id != l.id:
		return 0, errOtherSession
	case drawn.Int64 == 0:
		return 0, nil
	}
	return uint64(drawn.Int64) + l.shift, nil
}

// undo gives up what an attempt that failed may have taken. A link on which that
// is not possible either is gone, and what it took goes with it.
func (s *BoundStore) undo(l *link, key lockKey, cause error) {
	if errors.Is(cause, errOtherSession) {
		s.lose(l)
		return
	}
	if _, err := l.untie(key.mark); err != nil {
		s.lose(l)
	}
}

// untie gives up a lock and says whether it was held.
func (l *link) untie(mark any) (bool, error) {
	var released sql.NullInt64
	err := l.call(func(ctx context.Context) error {
		return l.release.QueryRowContext(ctx, mark).Scan(&released)
	})
	return released.Int64 == 1, err
}

func (s *BoundStore) untieSession(l *link, key lockKey) bool {
	released, err := l.untie(key.mark)
	return err == nil && released
}

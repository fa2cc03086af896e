package sqlsession

import (
	"context"
	"time"

	"github.com/dlock-go/dlock/driver"
)

const (
	// probeEvery is between two looks whether a connection with locks is alive.
	probeEvery = time.Second
	// idleProbeEvery is the same for one without. It is less than the shortest
	// idle timeout that a server is left with.
	idleProbeEvery = shortTimeout / 2
	// maxProbes is how many connections a Renew asks at a time.
	maxProbes = 16
)

// monitor gives up what has expired, finds out which connections are gone, and returns
// when it has to do so again.
func (s *Store) monitor(now time.Time) (next time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	next = now.Add(probeEvery)
	busy := make(map[*conn]bool)
	for _, h := range s.locks {
		if h.conn != nil {
			busy[h.conn] = true
		}
		switch {
		case h.phase != held:
		case !now.Before(h.deadline):
			s.expireLocked(h)
		case h.deadline.Before(next):
			next = h.deadline
		}
	}
	for c := range s.conns {
		s.checkLocked(c, now, busy[c])
	}
	return next
}

// checkLocked ends a conn that does not answer and asks one that has not been
// asked for a while.
func (s *Store) checkLocked(c *conn, now time.Time, busy bool) {
	every := int64(idleProbeEvery)
	if busy {
		every = int64(probeEvery) * 9 / 10 // the monitor comes about every second
	}
	switch began := c.began.Load(); {
	case began != 0 && now.UnixNano()-began > int64(callLimit):
		s.work.Go(func() { s.lose(c) })
	case began == 0 && now.UnixNano()-c.proven.Load() > every:
		s.work.Go(func() { _ = s.probe(s.ctx, c) }) // what it finds it does
	}
}

// expireLocked gives up a lock whose TTL is over.
func (s *Store) expireLocked(h *heldLock) {
	h.phase, h.expired = leaving, true
	s.work.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), callLimit)
		defer cancel()
		_ = s.giveUp(ctx, h) // a failure is tried again, because the TTL has still passed
	})
}

// probe finds out whether a conn is alive and the session still the same.
// driver.ErrNotHeld says that it is not; other errors say nothing.
func (s *Store) probe(ctx context.Context, c *conn) error {
	if err := c.enter(ctx); err != nil {
		if c.dead.Load() {
			return driver.ErrNotHeld
		}
		return err
	}
	return s.perform(ctx, c, func() error { return s.verify(c) })
}

// verify is probe for whoever uses the conn already.
func (s *Store) verify(c *conn) error {
	// Once more, because somebody may have cut off the statement and not the
	// connection.
	for range 2 {
		var id string
		err := c.call(func(ctx context.Context) error {
			return c.raw.QueryRowContext(ctx, s.server.identity).Scan(&id)
		})
		if err == nil && id == c.id {
			return nil
		}
	}
	s.lose(c)
	return driver.ErrNotHeld
}

// ask sends something that changes nothing over a conn that was entered. A conn
// that fails is verified at once: the monitor would leave one without locks alone
// for long, and those who wait for others to unlock depend on it.
func (s *Store) ask(c *conn, send func(context.Context) error) error {
	err := c.call(send)
	if err != nil {
		_ = s.verify(c) // what it finds it does
	}
	return err
}

package sqlsession

import (
	"context"
	"time"

	"github.com/dlock-go/dlock/driver"
)

const (
	// probeEvery is the time between two probes of a connection with locks or places.
	probeEvery = time.Second
	// idleProbeEvery is the same for another connection. It is less than the
	// shortest idle timeout that the store leaves as it is.
	idleProbeEvery = shortTimeout / 2
)

// monitor releases the locks that have expired, ends connections that do not answer, and
// returns when it has to be called again.
func (s *Store) monitor(now time.Time) (next time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	next = now.Add(probeEvery)
	busy := make(map[*conn]bool)
	for _, h := range s.allLocked() {
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
	for _, p := range s.places {
		busy[p.conn] = true
	}
	for c := range s.conns {
		s.probeIfDueLocked(c, now, busy[c])
	}
	if due := s.expirePlacesLocked(now); !due.IsZero() && due.Before(next) {
		next = due
	}
	return next
}

// probeIfDueLocked ends a conn that does not answer, and probes one that was not used for a while.
func (s *Store) probeIfDueLocked(c *conn, now time.Time, busy bool) {
	every := idleProbeEvery
	if busy {
		every = probeEvery * 9 / 10 // the monitor runs about every second
	}
	switch unanswered, unused := c.ages(now); {
	case unanswered > callLimit:
		s.work.Go(func() { s.lose(c) })
	case unanswered == 0 && unused > every:
		s.work.Go(func() { _ = s.probe(s.ctx, c) }) // which acts on what it finds
	}
}

// ages returns how long the statement under way has had no answer, zero without a statement,
// and how long ago the last statement that was answered was sent.
func (c *conn) ages(now time.Time) (unanswered, unused time.Duration) {
	if asked := c.asked.Load(); asked != 0 {
		unanswered = time.Duration(elapsed(now) - asked)
	}
	return unanswered, time.Duration(elapsed(now) - c.answered.Load())
}

// expireLocked releases a lock whose TTL has passed.
func (s *Store) expireLocked(h *heldLock) {
	h.phase, h.expired = releasing, true
	s.work.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), callLimit)
		defer cancel()
		_ = s.startUnlock(ctx, h) // a failure is tried again, because the TTL has still passed
	})
}

// probe reports whether a conn is alive and its session is still the same. If not, the conn
// is lost, and the error is driver.ErrNotHeld. Other errors say nothing about the conn.
func (s *Store) probe(ctx context.Context, c *conn) error {
	return s.use(ctx, c, func() error { return s.verify(c) })
}

// verify is probe on a conn that was entered.
func (s *Store) verify(c *conn) error {
	for range 2 { // the first statement may have been cancelled, and not the connection
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

// query sends a query on a conn that was entered. If it fails, query verifies the conn at once:
// the monitor rarely probes a conn without locks, and waiters depend on it.
func (s *Store) query(c *conn, send func(context.Context) error) error {
	err := c.call(send)
	if err != nil {
		_ = s.verify(c) // which acts on what it finds
	}
	return err
}

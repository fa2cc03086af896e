package sqlsession

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/sqldb"
)

// offersShared reports whether the server has shared locks of the scheme's kind.
func (s *Store) offersShared() bool {
	return s.scheme == Session && s.server.texts[stmtAcquireShared] != ""
}

// announceShared tells exclusive requests of other sessions that this one has shared locks from now on.
func (c *conn) announceShared(ctx context.Context) error {
	if c.announced {
		return nil
	}
	_, err := c.stmts[stmtAnnounce].ExecContext(ctx)
	c.announced = err == nil
	return err
}

// Downgrade implements driver.Downgrader. The session takes the shared lock before it gives up the
// exclusive one.
func (s *Store) Downgrade(ctx context.Context, grant driver.Grant) error {
	const op = "downgrade"
	if err := s.startCall(ctx, op); err != nil {
		return err
	}
	defer s.work.Done()
	if !s.offersShared() {
		return fmt.Errorf("%s: %w", op, driver.ErrUnsupported)
	}
	s.mu.Lock()
	h := s.ownedLocked(grant)
	s.mu.Unlock()
	if h == nil {
		return driver.ErrNotHeld
	}
	return s.explain(ctx, op, s.use(ctx, h.conn, func() error { return s.downgrade(h.conn, h) }))
}

// downgrade is Downgrade on a conn that was entered.
func (s *Store) downgrade(c *conn, h *heldLock) error {
	s.mu.Lock()
	isHeld, shared := h.phase == held, h.shared
	s.mu.Unlock()
	switch {
	case !isHeld:
		return driver.ErrNotHeld
	case shared:
		return nil
	}
	var done bool
	err := c.call(func(ctx context.Context) error {
		if err := c.announceShared(ctx); err != nil {
			return err
		}
		return c.stmts[stmtDowngrade].QueryRowContext(ctx, h.key.server).Scan(&done)
	})
	switch {
	case err != nil: // what it holds ends with the session
		s.lose(c)
		return err
	case !done:
		return fmt.Errorf("%w: a session of another program waits for the exclusive lock", driver.ErrUnreachable)
	}
	s.mu.Lock()
	h.shared = true
	s.mu.Unlock()
	s.wake(h.name)
	return nil
}

// places are those of the exclusive waiters of this store for one name.
type places struct {
	key     any                        // of the server's lock
	waiters map[driver.Owner]time.Time // until when each has a place
	conn    *conn                      // that holds the server's lock; nil if none does
	asking  *conn                      // that the server is being asked on; nil if it is not
}

// keepPlace keeps a place for an exclusive request with Queue that shared holders refused. It returns the
// refusal, or why the place could not be taken.
func (s *Store) keepPlace(ctx context.Context, req *driver.Request, refusal error) error {
	held, ok := errors.AsType[*driver.HeldError](refusal)
	if !ok || !held.Mode.Shared || !req.Queue || !s.offersShared() || ctx.Err() != nil { // its Release may have come before
		return refusal
	}
	until := time.Now().Add(driver.PlaceTTL(req.TTL))
	s.mu.Lock()
	p := s.places[req.Name]
	if p == nil {
		p = &places{key: s.key(req.Name).place, waiters: make(map[driver.Owner]time.Time)}
		s.places[req.Name] = p
	}
	p.waiters[req.Owner] = until
	s.mu.Unlock()
	s.alarm.NoLaterThan(until)
	if err := s.settlePlaces(ctx, req.Name); err != nil {
		return s.explain(ctx, "acquire", err)
	}
	return refusal
}

// leavePlace gives up the place of an owner, if it has one.
func (s *Store) leavePlace(ctx context.Context, name string, owner driver.Owner) error {
	s.mu.Lock()
	had := false
	if p := s.places[name]; p != nil {
		_, had = p.waiters[owner]
		delete(p.waiters, owner)
	}
	s.mu.Unlock()
	if !had {
		return nil
	}
	return s.explain(ctx, "release", s.settlePlaces(ctx, name))
}

// settlePlaces makes the server hold the lock for the places of a name as long as a waiter has one.
func (s *Store) settlePlaces(ctx context.Context, name string) error {
	return s.onMain(ctx, func(c *conn) error { return s.settlePlacesOn(c, name) })
}

// settlePlacesOn is settlePlaces on a conn that was entered.
func (s *Store) settlePlacesOn(c *conn, name string) error {
	s.mu.Lock()
	p := s.places[name]
	if p == nil {
		s.mu.Unlock()
		return nil
	}
	wanted, has := len(p.waiters) > 0, p.conn == c
	if wanted == has {
		if !wanted {
			delete(s.places, name)
		}
		s.mu.Unlock()
		return nil
	}
	p.asking = c
	s.mu.Unlock()
	c.placed.Store(true)
	id := stmtTakePlace
	if has {
		id = stmtLeavePlace
	}
	err := c.call(func(context.Context) error {
		_, err := c.stmts[id].ExecContext(uncancelled, p.key)
		return err
	})
	s.mu.Lock()
	if p.asking == c { // otherwise c was lost, and another conn was asked since
		p.asking, p.conn = nil, nil
		switch {
		case err != nil:
		case wanted:
			p.conn = c
		case len(p.waiters) == 0 && s.places[name] == p:
			delete(s.places, name)
		}
	}
	s.mu.Unlock()
	if err != nil { // what it holds ends with the session
		s.lose(c)
		return err
	}
	if !wanted {
		s.wake(name)
	}
	return nil
}

// expirePlacesLocked gives up the places that have expired, and returns when the next one does.
func (s *Store) expirePlacesLocked(now time.Time) (next time.Time) {
	for name, p := range s.places {
		for owner, until := range p.waiters {
			switch {
			case !now.Before(until):
				delete(p.waiters, owner)
			case next.IsZero() || until.Before(next):
				next = until
			}
		}
		switch {
		case len(p.waiters) > 0 || p.asking != nil && !p.asking.dead.Load():
		case p.conn == nil || p.conn.dead.Load():
			delete(s.places, name)
		default:
			s.work.Go(func() {
				ctx, cancel := context.WithTimeout(s.ctx, callLimit)
				defer cancel()
				_ = s.settlePlaces(ctx, name) // a failure is tried again, or the session has ended
			})
		}
	}
	return next
}

// pollShared wakes the waiters for shared locks that may be had, and reports whether there are some.
func (s *Store) pollShared() (some bool) {
	var names []string
	var keys, placeKeys []any
	for name, waiters := range s.waiters.Sharing() {
		key := waiters[0].key
		names, keys, placeKeys = append(names, name), append(keys, key.server), append(placeKeys, key.place)
	}
	if len(names) == 0 {
		return false
	}
	free, _ := s.find(stmtFindShareable, names, sqldb.JSON(keys), sqldb.JSON(placeKeys))
	for name := range free {
		s.wake(name, driver.Mode{Shared: true})
	}
	return len(free) > 0
}

package sqlsession

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/backoff"
)

// Watch implements driver.Watcher. Waiting costs no connection: one goroutine polls for all
// names that are watched, with one query. It sees that a lock is free, whatever the reason.
func (s *Store) Watch(ctx context.Context, req driver.Request, wake func()) (stop func(), err error) {
	if err := s.startCall(ctx, "watch"); err != nil {
		return nil, err
	}
	defer s.work.Done()
	w := &waiter{key: s.key(req.Name), shared: req.Mode.Shared && s.offersShared(), wake: wake}
	if !s.waiters.Join(req.Name, w, func() { s.work.Go(s.poll) }) {
		return nil, driver.ErrClosed
	}
	return func() {
		s.waiters.Lock()
		defer s.waiters.Unlock()
		s.waiters.Remove(req.Name, w)
	}, nil
}

// waiter is one call of Watch until its stop.
type waiter struct {
	key    lockKey // of the name
	shared bool
	wake   func()
}

// Mode implements sqldb.Waiter.
func (w *waiter) Mode() driver.Mode { return driver.Mode{Shared: w.shared} }

// wake wakes the waiters for name, or of these just the ones with a mode.
func (s *Store) wake(name string, modes ...driver.Mode) {
	s.waiters.Lock()
	defer s.waiters.Unlock()
	for _, w := range s.waiters.Of(name) {
		if modes == nil || slices.Contains(modes, w.Mode()) {
			w.wake()
		}
	}
}

// The time between two polls grows with the time since the last change.
const (
	minPoll      = time.Millisecond
	maxPoll      = 100 * time.Millisecond
	pollFraction = 16
	// While a busy lock may change hands all the time, polls are frequent enough to see the
	// pause that a process makes after its time slice.
	busyTime = 200 * time.Millisecond
	busyPoll = 2 * minPoll
	// pollRest is how long the server is left alone, in times of what a poll takes.
	pollRest = 2
)

// poll polls until no name has waiters any more or the store is closed.
func (s *Store) poll() {
	moved := time.Now()
	free := make(map[string]bool) // as of the last poll
	failing := false
	timer := time.NewTimer(minPoll)
	defer timer.Stop()
	for {
		s.waiters.Lock()
		names, keys := s.waiters.AwaitedLocked()
		s.waiters.Polling = len(names) > 0
		s.waiters.Unlock()
		if names == nil || s.ctx.Err() != nil {
			return
		}
		began := time.Now()
		now, err := s.find(stmtFindFree, names, keys)
		switch {
		case err != nil:
			failing = true
		case failing:
			failing, moved = false, time.Now()
			for _, name := range names {
				s.wake(name)
			}
		}
		for name := range now {
			if !free[name] {
				moved = time.Now()
			}
			s.wake(name, driver.Mode{})
		}
		free = now
		if err == nil && s.pollShared() {
			moved = time.Now()
		}
		pause := pollPause(time.Since(moved))
		if failing {
			pause = maxPoll
		}
		rest := pollRest * time.Since(began)
		timer.Reset(max(pause, rest))
		select {
		case <-timer.C:
		case <-s.ctx.Done():
			return
		case <-s.waiters.PollNow:
			moved = time.Now()
			if backoff.Sleep(s.ctx, max(minPoll, rest)) != nil {
				return
			}
		}
	}
}

// pollPause returns the time until the next poll if nothing has changed for so long.
func pollPause(unchanged time.Duration) time.Duration {
	if unchanged < busyTime {
		return min(max(unchanged/pollFraction, minPoll), busyPoll)
	}
	return min(busyPoll+(unchanged-busyTime)/pollFraction, maxPoll)
}

// find returns those of the names whose keys a query finds.
func (s *Store) find(query sessionStatement, names []string, keys ...any) (found map[string]bool, err error) {
	ctx, cancel := context.WithTimeout(s.ctx, callLimit)
	defer cancel()
	positions, err := s.findPositions(ctx, query, keys)
	found = make(map[string]bool)
	for _, n := range positions {
		if n < 1 || n > len(names) {
			return nil, fmt.Errorf("the server answers with the position %d of %d keys", n, len(names))
		}
		found[names[n-1]] = true
	}
	return found, err
}

// findPositions returns the positions of the keys that a query finds. Session uses its main conn, which
// may be the only connection. ForUpdate takes one from the pool for a moment.
func (s *Store) findPositions(ctx context.Context, query sessionStatement, keys []any) (positions []int, err error) {
	if s.scheme == ForUpdate {
		return column[int](s.db.QueryContext(ctx, s.server.texts[query], keys...))
	}
	c, err := s.enterMain(ctx)
	if err != nil {
		return nil, err
	}
	defer c.leave()
	err = s.query(c, func(ctx context.Context) error {
		positions, err = column[int](c.stmts[query].QueryContext(ctx, keys...))
		return err
	})
	return positions, err
}

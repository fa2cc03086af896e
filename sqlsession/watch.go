package sqlsession

import (
	"context"
	"fmt"
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
	w := &waiter{key: s.key(req.Name).server, wake: wake}
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
	key  any // of the name
	wake func()
}

func (s *Store) wake(names ...string) {
	s.waiters.Lock()
	defer s.waiters.Unlock()
	for _, name := range names {
		for _, w := range s.waiters.Of(name) {
			w.wake()
		}
	}
}

// awaited returns the names that have waiters and their keys. Without waiters, the polling
// ends.
func (s *Store) awaited() (names []string, keys string) {
	s.waiters.Lock()
	defer s.waiters.Unlock()
	names, keys = s.waiters.AwaitedLocked()
	s.waiters.Polling = len(names) > 0
	return names, keys
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
		names, keys := s.awaited()
		if names == nil || s.ctx.Err() != nil {
			return
		}
		began := time.Now()
		now, err := s.freeNames(names, keys)
		switch {
		case err != nil:
			failing = true
		case failing:
			failing, moved = false, time.Now()
			s.wake(names...)
		}
		for name := range now {
			if !free[name] {
				moved = time.Now()
			}
			s.wake(name)
		}
		free = now
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
		case <-s.waiters.Kick:
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

func (s *Store) freeNames(names []string, keys string) (map[string]bool, error) {
	numbers, err := s.freeKeys(keys)
	free := make(map[string]bool)
	for _, n := range numbers {
		if n < 1 || n > len(names) {
			return nil, fmt.Errorf("the server answers with the number %d of %d keys", n, len(names))
		}
		free[names[n-1]] = true
	}
	return free, err
}

// freeKeys asks the server for the numbers of the keys that are free. Session uses its shared
// conn, which may be the only connection. ForUpdate takes one from the pool for a moment.
func (s *Store) freeKeys(keys string) (numbers []int, err error) {
	ctx, cancel := context.WithTimeout(s.ctx, callLimit)
	defer cancel()
	if s.scheme == ForUpdate {
		return column[int](s.db.QueryContext(ctx, s.server.findFree, keys))
	}
	c, err := s.enterShared(ctx)
	if err != nil {
		return nil, err
	}
	defer c.leave()
	err = s.query(c, func(ctx context.Context) error {
		numbers, err = column[int](c.findFree.QueryContext(ctx, keys))
		return err
	})
	return numbers, err
}

package memcachelock

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/backoff"
	"github.com/dlock-go/dlock/internal/subscribers"
)

// pollInterval is the pause between two polls, on average. Package dlock polls locks that change
// hands often by itself.
const pollInterval = 75 * time.Millisecond

// linger is how long the poller stays without waiters.
const linger = time.Second

// waiters are the waiters of the process, for which one goroutine polls.
type waiters struct {
	mu      sync.Mutex // held while a waiter is notified, so that stop ends its notifications
	byName  subscribers.Registry[*subscribers.Subscriber]
	polling bool
}

// Watch implements driver.Watcher. memcached sends no notifications: the store polls for all
// waiters of the process together, several times a second.
func (s *Store) Watch(ctx context.Context, req driver.Request, wake func()) (stop func(), err error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	waiter, ws := subscribers.New(wake), &s.waiters
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if s.closed.Load() {
		return nil, driver.ErrClosed
	}
	ws.byName.Add(req.Name, waiter)
	if !ws.polling {
		ws.polling = true
		s.work.Go(s.poll)
	}
	return func() {
		ws.mu.Lock()
		defer ws.mu.Unlock()
		ws.byName.Remove(req.Name, waiter)
	}, nil
}

// wake wakes the waiters for the names.
func (ws *waiters) wake(names ...string) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for _, name := range names {
		for _, waiter := range ws.byName.Of(name) {
			waiter.Notify()
		}
	}
}

// names returns the names that have waiters. If there are none and the poller may stop, names
// notes that it does.
func (ws *waiters) names(mayStop bool) (names []string, stop bool) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	names, _ = ws.byName.Names()
	stop = mayStop && len(names) == 0
	ws.polling = !stop
	return names, stop
}

// poll polls until there have been no waiters for a while.
func (s *Store) poll() {
	lastWaiter := time.Now()
	reachable := true // at the last poll
	for backoff.Sleep(s.ctx, backoff.Jitter(pollInterval)) == nil {
		names, stop := s.waiters.names(time.Since(lastWaiter) > linger)
		if stop {
			return
		}
		if len(names) == 0 {
			continue
		}
		lastWaiter = time.Now()
		if err := s.wakeFree(names); (err == nil) != reachable {
			// All waiters try, and learn that the server is gone, or what happened meanwhile.
			reachable = err == nil
			all, _ := s.waiters.names(false)
			s.waiters.wake(all...)
		}
	}
}

// wakeFree wakes the waiters for locks that are free.
func (s *Store) wakeFree(names []string) error {
	for chunk := range slices.Chunk(names, maxPipelined) {
		var free []string
		err := s.call(s.ctx, nil, func(c *conn) (err error) {
			free, err = c.free(chunk)
			return err
		})
		if err != nil {
			return err
		}
		s.waiters.wake(free...)
	}
	return nil
}

// free returns the names whose locks are free.
func (c *conn) free(names []string) (free []string, err error) {
	for _, name := range names {
		c.writeGet(keyOf(name), false)
	}
	if err := c.flush(); err != nil {
		return nil, err
	}
	for _, name := range names {
		a, err := c.read()
		if broken(err) {
			return nil, err
		}
		if err == nil && !a.done {
			free = append(free, name)
		}
	}
	return free, nil
}

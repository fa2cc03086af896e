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

// waiters are the waiters of the process, for which one goroutine polls.
type waiters struct {
	mu      sync.Mutex // held while a waiter is notified, so that stop ends its notifications
	byName  subscribers.Registry[*subscribers.Subscriber]
	polling bool
}

// Watch implements driver.Watcher. memcached sends no notifications: the store polls for all
// waiters of the process together, several times a second.
func (s *Store) Watch(ctx context.Context, req driver.Request, wake func()) (stop func(), err error) {
	waiter, ws := subscribers.New(wake), &s.waiters
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if err := s.usable(ctx); err != nil {
		return nil, err
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

// wake wakes the waiters for name.
func (ws *waiters) wake(name string) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for _, waiter := range ws.byName.Of(name) {
		waiter.Notify()
	}
}

// names returns the names that have waiters. Without waiters, names notes that the poller
// stops.
func (ws *waiters) names() []string {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	names, _ := ws.byName.Names()
	ws.polling = len(names) > 0
	return names
}

// poll polls while there are waiters. It wakes those whose lock is free or was stored again,
// and all of them if the server is gone or back.
func (s *Store) poll() {
	reachable := true
	numbers := make(map[string]uint64) // of the items, as the last poll found them
	for backoff.Sleep(s.ctx, backoff.Jitter(pollInterval)) == nil {
		names := s.waiters.names()
		if len(names) == 0 {
			return
		}
		found, err := s.findNumbers(names)
		all := (err == nil) != reachable
		reachable = err == nil
		for _, name := range names {
			number, held := found[name]
			before, known := numbers[name]
			if all || reachable && (!held || known && number != before) {
				s.waiters.wake(name)
			}
		}
		numbers = found
	}
}

// findNumbers returns the numbers of the items of the locks that are held.
func (s *Store) findNumbers(names []string) (map[string]uint64, error) {
	numbers := make(map[string]uint64, len(names))
	for chunk := range slices.Chunk(names, maxPipelined) {
		err := s.call(s.ctx, func(c *conn) error {
			for _, name := range chunk {
				c.writeGet(name, itemNumber)
			}
			return c.readAll(len(chunk), func(i int, a answer, err error) {
				if a.done || err != nil {
					numbers[chunk[i]] = a.item.cas
				}
			})
		})
		if err != nil {
			return nil, err
		}
	}
	return numbers, nil
}

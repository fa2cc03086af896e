package memcachelock

import (
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// pollInterval is between two looks at what is waited for, and up to half as much
// more, by chance: those who wait in many processes should not come at once.
const pollInterval = 60 * time.Millisecond

// linger is how long the poller stays when nobody waits any more.
const linger = time.Second

// watches are all who wait.
type watches struct {
	mu      sync.Mutex
	byName  map[string]map[*watch]bool
	polling bool
}

type watch struct{ wake func() }

func (ws *watches) init() { ws.byName = make(map[string]map[*watch]bool) }

// Watch implements driver.Watcher. memcached tells nobody anything, so that one
// goroutine looks for all who wait, some times a second.
func (s *Store) Watch(ctx context.Context, req driver.Request, wake func()) (stop func(), err error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	w := &watch{wake}
	ws := &s.watches
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if s.closed.Load() {
		return nil, driver.ErrClosed
	}
	if ws.byName[req.Name] == nil {
		ws.byName[req.Name] = make(map[*watch]bool)
	}
	ws.byName[req.Name][w] = true
	if !ws.polling {
		ws.polling = true
		s.work.Go(s.poll)
	}
	return func() { ws.remove(req.Name, w) }, nil
}

func (ws *watches) remove(name string, w *watch) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	delete(ws.byName[name], w)
	if len(ws.byName[name]) == 0 {
		delete(ws.byName, name)
	}
}

// wake wakes who waits for name in this process.
func (ws *watches) wake(name string) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for w := range ws.byName[name] {
		w.wake()
	}
}

// wakeAll wakes all waiters of this process.
func (ws *watches) wakeAll() {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for _, waiters := range ws.byName {
		for w := range waiters {
			w.wake()
		}
	}
}

func (ws *watches) names() []string {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	return slices.Collect(maps.Keys(ws.byName))
}

// retire ends the polling unless somebody waits.
func (ws *watches) retire() bool {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.polling = len(ws.byName) > 0
	return !ws.polling
}

// poll looks until nobody has waited for a while.
func (s *Store) poll() {
	last := time.Now()
	reached := true // the server, at the last look
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-time.After(pollInterval + rand.N(pollInterval/2)):
		}
		names := s.watches.names()
		switch {
		case len(names) > 0:
			last = time.Now()
			if err := s.look(names); (err == nil) != reached {
				// Each waiter finds out that the server is gone, or what happened
				// while it was.
				reached = err == nil
				s.watches.wakeAll()
			}
		case time.Since(last) > linger && s.watches.retire():
			return
		}
	}
}

// look wakes the waiters of locks that are free.
func (s *Store) look(names []string) error {
	for chunk := range slices.Chunk(names, renewChunk) {
		var free []string
		err := s.call(s.ctx, func(c *conn) (err error) {
			free, err = c.free(chunk)
			return err
		})
		if err != nil {
			return err
		}
		for _, name := range free {
			s.watches.wake(name)
		}
	}
	return nil
}

// free returns those of the names that nobody has.
func (c *conn) free(names []string) (free []string, err error) {
	for _, name := range names {
		c.writeGet(keyOf(name), false)
	}
	if err := c.flush(); err != nil {
		return nil, err
	}
	for _, name := range names {
		a, err := c.read()
		if err != nil {
			return nil, midway(err)
		}
		if !a.done {
			free = append(free, name)
		}
	}
	return free, nil
}

package zklock

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/go-zookeeper/zk"
)

// waiter is somebody who wants to be woken.
type waiter struct {
	wake func()
	mu   sync.Mutex
	over bool
}

// call wakes, unless it is over.
func (w *waiter) call() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.over {
		w.wake()
	}
}

func (w *waiter) silence() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.over = true
}

// watchedNode is a node whose removal somebody wants to know of.
type watchedNode struct {
	armed  bool                // the server will tell
	claims map[*claim]struct{} // that wait for it
	owner  *claim              // whose node it is; nil if not ours or not guarded
}

func (s *Store) watchedNodeLocked(path string) *watchedNode {
	n := s.watches[path]
	if n == nil {
		n = &watchedNode{claims: make(map[*claim]struct{})}
		s.watches[path] = n
	}
	return n
}

// Watch implements driver.Watcher. With the order Fair whoever watches has a place in
// the queue, and watches the one before.
func (s *Store) Watch(ctx context.Context, req driver.Request, wake func()) (stop func(), err error) {
	w := &waiter{wake: wake}
	stop = sync.OnceFunc(func() { s.unwatch(&req, w) })
	if err := s.do(ctx, func(ctx context.Context) error { return s.watch(ctx, &req, w) }); err != nil {
		w.silence()
		go stop() // when the call under way is over
		return nil, err
	}
	return stop, nil
}

func (s *Store) watch(ctx context.Context, req *driver.Request, w *waiter) error {
	c := s.enter(claimKey{req.Name, req.Owner}, true)
	defer s.leave(c)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	s.mu.Lock()
	if c.waiters == nil {
		c.waiters = make(map[*waiter]struct{})
	}
	c.waiters[w] = struct{}{}
	c.unasked = true
	s.mu.Unlock()
	at, err := s.standToWatch(ctx, c, req)
	if err != nil {
		return explain("watching a lock", err)
	}
	if at.first {
		w.call()
	}
	return nil
}

// standToWatch is stand for the order Fair. With the order Unfair there is no node to
// create, and the first of the queue is watched.
func (s *Store) standToWatch(ctx context.Context, c *claim, req *driver.Request) (position, error) {
	if s.order == Fair {
		return s.stand(ctx, c, req)
	}
	var at position
	err := s.persist(ctx, func() error {
		for {
			queue, err := s.queue(c.parent)
			if errors.Is(err, zk.ErrNoNode) || err == nil && len(queue) == 0 {
				at.first = true
				return nil
			}
			if err == nil {
				_, _, err = s.watchNode(c, c.parent+"/"+queue[0])
			}
			if !errors.Is(err, zk.ErrNoNode) {
				return err
			}
		}
	})
	return at, err
}

func (s *Store) watched(c *claim) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(c.waiters) > 0
}

// watchNode makes the server tell when a node is removed. ErrNoNode says that it is
// not there any more. One that is watched already is not asked for again, and returned
// is nothing then: the client would remember each time.
func (s *Store) watchNode(c *claim, path string) (data []byte, stat *zk.Stat, err error) {
	s.mu.Lock()
	if c.watching == nil {
		c.watching = make(map[string]struct{})
	}
	c.watching[path] = struct{}{}
	n := s.watchedNodeLocked(path)
	n.claims[c] = struct{}{}
	armed := n.armed
	s.mu.Unlock()
	if armed {
		return nil, nil, nil
	}
	data, stat, _, err = s.conn.GetW(path)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.unwatchLocked(c, path)
		return nil, nil, err
	}
	n.armed = true
	return data, stat, nil
}

// unwatchLocked makes the claim not watch a node any more. What the server was asked to
// tell, it will tell: there is no way to take that back.
func (s *Store) unwatchLocked(c *claim, path string) {
	delete(c.watching, path)
	if n := s.watches[path]; n != nil {
		delete(n.claims, c)
		s.forgetUnusedLocked(path)
	}
}

// forgetUnusedLocked forgets a node of which nobody is told and that nobody waits for.
// Names are used once: it would stay for as long as the session.
func (s *Store) forgetUnusedLocked(path string) {
	if n := s.watches[path]; n != nil && !n.armed && n.owner == nil && len(n.claims) == 0 {
		delete(s.watches, path)
	}
}

func (s *Store) unwatchAllLocked(c *claim) {
	for path := range c.watching {
		s.unwatchLocked(c, path)
	}
}

// stopLimit is how long stop waits until a place is given up, which goes on later.
const stopLimit = time.Second

// unwatch ends a subscription, and gives up a place that nobody else keeps.
func (s *Store) unwatch(req *driver.Request, w *waiter) {
	w.silence()
	key := claimKey{req.Name, req.Owner}
	s.mu.Lock()
	c := s.claims[key]
	if c != nil {
		delete(c.waiters, w)
		s.lastsLocked(c, time.Until(c.deadline))
	}
	nothing := c == nil || c.granted || c.queued || len(c.waiters) > 0
	s.mu.Unlock()
	if nothing {
		return
	}
	done := make(chan struct{})
	s.later(func(ctx context.Context) {
		defer close(done)
		c := s.enter(key, false)
		if c == nil {
			return
		}
		defer s.leave(c)
		s.mu.Lock()
		delete(c.waiters, w) // it may have come meanwhile
		keep := c.granted || c.queued || len(c.waiters) > 0
		s.mu.Unlock()
		if !keep {
			_, _ = s.give(ctx, c) // its time is over otherwise
		}
	})
	select {
	case <-done:
	case <-time.After(stopLimit):
	case <-s.ctx.Done():
	}
}

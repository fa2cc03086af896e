package zklock

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/subscribers"
	"github.com/go-zookeeper/zk"
)

// Watch implements driver.Watcher. With the order Fair a watch also keeps a place in the
// queue.
func (s *Store) Watch(ctx context.Context, req driver.Request, wake func()) (stop func(), err error) {
	waiter := subscribers.New(wake)
	stop = sync.OnceFunc(func() { s.stopWatch(&req, waiter) })
	if err := s.run(ctx, "watching a lock", func(ctx context.Context) error { return s.watch(ctx, &req, waiter) }); err != nil {
		waiter.Stop()
		go stop() // it waits for the call under way
		return nil, err
	}
	return stop, nil
}

func (s *Store) watch(ctx context.Context, req *driver.Request, waiter *subscribers.Subscriber) error {
	a := s.enter(req.Name, req.Owner, true)
	defer s.leave(a)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	s.mu.Lock()
	if a.waiters == nil {
		a.waiters = make(map[*subscribers.Subscriber]struct{})
	}
	a.waiters[waiter] = struct{}{}
	a.fresh = true
	s.mu.Unlock()
	free, err := s.watchQueue(ctx, a, req)
	if free && err == nil {
		waiter.Notify()
	}
	return err
}

// watchQueue watches the nodes ahead, and reports whether the lock is free. With the order
// Unfair the acquisition needs no node: watchQueue watches the first node of the queue.
func (s *Store) watchQueue(ctx context.Context, a *acquisition, req *driver.Request) (free bool, err error) {
	if s.opts.Order == Fair {
		at, err := s.ensureQueued(ctx, a, req)
		return at.first, err
	}
	err = s.persist(ctx, func() error {
		for {
			queue, err := s.queue(a.container)
			if free = err == nil && len(queue) == 0; err != nil || free {
				return err
			}
			_, _, err = s.watchNode(a, a.container+"/"+queue[0])
			if !errors.Is(err, zk.ErrNoNode) {
				return err
			}
		}
	})
	return free, err
}

// stopLimit is how long stop waits until the place is given up. Giving it up goes on.
const stopLimit = time.Second

// stopWatch ends a watch, and gives up a place that nothing else keeps.
func (s *Store) stopWatch(req *driver.Request, waiter *subscribers.Subscriber) {
	waiter.Stop()
	done := make(chan struct{})
	s.mu.Lock()
	if a := s.acquisitions[acquisitionKey{req.Name, req.Owner}]; a == nil || s.removeWaiterLocked(a, waiter) {
		close(done)
	} else {
		s.backgroundLocked(func(ctx context.Context) {
			defer close(done)
			s.giveUpPlace(ctx, req, waiter)
		})
	}
	s.mu.Unlock()
	select {
	case <-done:
	case <-time.After(stopLimit):
	case <-s.ctx.Done():
	}
}

// removeWaiterLocked reports whether something else keeps the acquisition's node.
func (s *Store) removeWaiterLocked(a *acquisition, waiter *subscribers.Subscriber) (kept bool) {
	delete(a.waiters, waiter)
	s.setDeadlineLocked(a, time.Until(a.deadline))
	return a.granted || a.keepsPlaceLocked()
}

func (s *Store) giveUpPlace(ctx context.Context, req *driver.Request, waiter *subscribers.Subscriber) {
	a := s.enter(req.Name, req.Owner, false)
	if a == nil {
		return
	}
	defer s.leave(a)
	kept := false
	s.locked(func() { kept = s.removeWaiterLocked(a, waiter) }) // Watch may have added it meanwhile
	if !kept {
		_, _, _ = s.releaseNode(ctx, a) // otherwise it expires
	}
}

// watchedNode is a node whose removal the store wants to know of.
type watchedNode struct {
	armed        bool                      // the server will notify the store
	acquisitions map[*acquisition]struct{} // its holder, if that is of this store, and those that wait for its removal
}

// watchedNodeLocked makes nodeEvent notify the acquisition of events of a node.
func (s *Store) watchedNodeLocked(a *acquisition, path string) *watchedNode {
	n := s.watches[path]
	if n == nil {
		n = &watchedNode{acquisitions: make(map[*acquisition]struct{})}
		s.watches[path] = n
	}
	n.acquisitions[a] = struct{}{}
	if a.watching == nil {
		a.watching = make(map[string]struct{})
	}
	a.watching[path] = struct{}{}
	return n
}

// watchNode makes the server notify the store when a node is removed, and returns the
// node's data. ErrNoNode says that the node is gone. For a node that is watched already
// watchNode returns nothing and sends no request: the client would remember each watch.
func (s *Store) watchNode(a *acquisition, path string) (data []byte, stat *zk.Stat, err error) {
	s.mu.Lock()
	n := s.watchedNodeLocked(a, path)
	armed := n.armed
	s.mu.Unlock()
	if armed {
		return nil, nil, nil
	}
	data, stat, _, err = s.conn.GetW(path)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.unwatchNodeLocked(a, path)
		return nil, nil, err
	}
	n.armed = true
	return data, stat, nil
}

// unwatchNodeLocked ends the acquisition's interest in a node. The server still notifies the
// store: that cannot be taken back. A node without a watch and without acquisitions is forgotten:
// its name is used once, and would stay for as long as the session.
func (s *Store) unwatchNodeLocked(a *acquisition, path string) {
	delete(a.watching, path)
	if n := s.watches[path]; n != nil {
		delete(n.acquisitions, a)
		if !n.armed && len(n.acquisitions) == 0 {
			delete(s.watches, path)
		}
	}
}

// nodeEvent notes that a watched node was removed or changed.
func (s *Store) nodeEvent(event zk.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.watches[event.Path]
	if n == nil {
		return
	}
	delete(s.watches, event.Path)
	for a := range n.acquisitions {
		if a.path() == event.Path {
			a.guarded = 0
			if event.Type == zk.EventNodeDeleted && !a.leaving {
				s.nodeVanishedLocked(a)
			}
		}
		if a.nodeChangedLocked(event) {
			a.wakeLocked()
		}
	}
}

// wakeAllLocked wakes all waiters.
func (s *Store) wakeAllLocked() {
	for _, a := range s.acquisitions {
		a.wakeLocked()
	}
}

func (a *acquisition) wakeLocked() {
	for waiter := range a.waiters {
		waiter.Notify()
	}
}

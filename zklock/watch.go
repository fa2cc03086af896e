package zklock

import (
	"context"
	"errors"
	"slices"
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
		go stop() // in the background: stop waits until the abandoned call has ended
		return nil, err
	}
	return stop, nil
}

func (s *Store) watch(ctx context.Context, req *driver.Request, waiter *subscribers.Subscriber) error {
	h := s.lockHold(holdID{req.Name, req.Owner}, true)
	defer s.unlockHold(h)
	s.mu.Lock()
	if ctx.Err() != nil { // with the mutex: a caller that leaves later finds its waiter, and removes it
		s.mu.Unlock()
		return context.Cause(ctx)
	}
	if len(h.waiters) == 0 {
		s.joinCrowdLocked(h)
	}
	h.waiters[waiter] = struct{}{}
	h.firstAttempt = true
	s.mu.Unlock()
	free, err := s.watchQueue(ctx, h, req)
	if errors.Is(err, driver.ErrMode) { // the next attempt returns it
		free, err = true, s.withdraw(ctx, h)
	}
	if free && err == nil {
		waiter.Notify()
	}
	return err
}

// watchQueue watches the nodes ahead, and reports whether the lock is free. With the order
// Unfair the hold needs no node: watchQueue watches the first node of the queue.
func (s *Store) watchQueue(ctx context.Context, h *hold, req *driver.Request) (free bool, err error) {
	if s.opts.Order == Fair {
		at, err := s.ensureQueued(ctx, h, req)
		return at.first, err
	}
	err = s.retry(ctx, func() error {
		for {
			queue, err := s.queue(h.container)
			if free = err == nil && len(queue) == 0; err != nil || free {
				return err
			}
			_, _, err = s.watchNode(h, h.container+"/"+queue[0].node)
			if !errors.Is(err, zk.ErrNoNode) {
				return err
			}
		}
	})
	return free, err
}

// stopLimit bounds how long stop waits for the removal of the place, which goes on after that.
const stopLimit = time.Second

// stopWatch ends a watch, and gives up a place that nothing else keeps.
func (s *Store) stopWatch(req *driver.Request, waiter *subscribers.Subscriber) {
	waiter.Stop()
	done := make(chan struct{})
	s.mu.Lock()
	if h := s.holds[holdID{req.Name, req.Owner}]; h == nil || s.removeWaiterLocked(h, waiter) {
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

// removeWaiterLocked removes a waiter, and reports whether the hold's node is still needed.
func (s *Store) removeWaiterLocked(h *hold, waiter *subscribers.Subscriber) (needed bool) {
	if _, waits := h.waiters[waiter]; waits && len(h.waiters) == 1 {
		s.leaveCrowdLocked(h)
	}
	delete(h.waiters, waiter)
	s.alarm.NoLaterThan(h.expires) // the janitor ignores the expiry of a place while there are waiters
	return h.held || h.waitsLocked()
}

func (s *Store) giveUpPlace(ctx context.Context, req *driver.Request, waiter *subscribers.Subscriber) {
	h := s.lockHold(holdID{req.Name, req.Owner}, false)
	if h == nil {
		return
	}
	defer s.unlockHold(h)
	needed := false
	s.withLock(func() { needed = s.removeWaiterLocked(h, waiter) }) // Watch may have added it meanwhile
	if !needed {
		_, _, _ = s.releaseNodes(ctx, h) // if it fails, the place expires
	}
}

type watchedNode struct {
	armed bool               // the server will notify the store
	holds map[*hold]struct{} // the hold of the node, if this store has it, and the holds that wait for its removal
}

// registerLocked makes nodeEvent notify the hold of events of a node.
func (s *Store) registerLocked(h *hold, path string) *watchedNode {
	n := s.watches[path]
	if n == nil {
		n = &watchedNode{holds: make(map[*hold]struct{})}
		s.watches[path] = n
	}
	n.holds[h] = struct{}{}
	h.watching[path] = struct{}{}
	return n
}

// watchNode makes the server notify the store when a node is removed or, of the parent of the lease
// nodes, when one is created or removed. It returns the node's data. ErrNoNode says that the node
// is gone. For a node that is watched already watchNode returns nothing and sends no request: that
// would only add a second watch to the client's memory.
func (s *Store) watchNode(h *hold, path string) (data []byte, stat *zk.Stat, err error) {
	s.mu.Lock()
	n := s.registerLocked(h, path)
	armed := n.armed
	s.mu.Unlock()
	if armed {
		return nil, nil, nil
	}
	if path == pathIn(h.container, leasesParent) {
		_, stat, _, err = s.conn.ChildrenW(path)
	} else {
		data, stat, _, err = s.conn.GetW(path)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		if errors.Is(err, zk.ErrNoNode) {
			s.noteRemovedLocked(path)
		}
		s.unregisterLocked(h, path)
		return nil, nil, err
	}
	n.armed = true
	return data, stat, nil
}

// unregisterLocked undoes registerLocked. The server still notifies the store: that cannot be taken
// back. A node without a watch and without holds is forgotten: its name is used once, and would
// stay for as long as the session.
func (s *Store) unregisterLocked(h *hold, path string) {
	delete(h.watching, path)
	if n := s.watches[path]; n != nil {
		delete(n.holds, h)
		if !n.armed && len(n.holds) == 0 {
			delete(s.watches, path)
		}
	}
}

// nodeEvent notes that a watched node was removed or changed.
func (s *Store) nodeEvent(event zk.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	removed := event.Type == zk.EventNodeDeleted
	if removed {
		s.noteRemovedLocked(event.Path)
	}
	n := s.watches[event.Path]
	if n == nil {
		return
	}
	delete(s.watches, event.Path)
	for h := range n.holds {
		delete(h.watching, event.Path)
		if slices.Contains(h.pathsLocked(), event.Path) {
			h.watchedBy = 0
			if removed && !h.leaving {
				s.nodeLostLocked(h)
			}
		}
		if !removed {
			h.position = position{}
		}
		if h.position.noteRemoved(h.relative(event.Path)) {
			h.wakeLocked()
		}
	}
}

func (s *Store) wakeAllLocked() {
	for _, h := range s.holds {
		h.wakeLocked()
	}
}

func (h *hold) wakeLocked() {
	for waiter := range h.waiters {
		waiter.Notify()
	}
}

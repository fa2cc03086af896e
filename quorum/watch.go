package quorum

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// watch wakes one waiter. Trying again is worth it when as many members have been
// released as were missing to a majority, and not before: otherwise those who wait
// would wake each other by giving back the few members that were free.
type watch struct {
	s      *Store
	owner  driver.Owner
	wakeUp func()

	mu         sync.Mutex
	begun      bool // Watch has returned
	stopped    bool
	stops      []func()
	subscribed set
	woken      set // since the last attempt began
	free       set // who granted the last attempt; nobody before the first
	recess     *time.Timer
}

// Watch implements driver.Watcher. It returns as soon as a majority of the members
// is watched; fewer may miss a release.
func (s *Store) Watch(ctx context.Context, req driver.Request, wake func()) (stop func(), err error) {
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	defer s.end()
	n := len(s.members)
	w := &watch{s: s, owner: req.Owner, wakeUp: wake}
	type outcome struct {
		member int
		err    error
	}
	outcomes := make(chan outcome, n)
	for i, m := range s.members {
		s.work.Go(func() { outcomes <- outcome{i, w.subscribe(ctx, m, req)} })
	}
	errs := make([]error, n)
	watched := 0
	for range n {
		select {
		case o := <-outcomes:
			if errs[o.member] = o.err; o.err == nil {
				watched++
			}
		case <-ctx.Done():
			w.stop()
			return nil, context.Cause(ctx)
		}
		if watched >= s.rules.majority {
			w.mu.Lock()
			w.begun = true
			w.mu.Unlock()
			s.mu.Lock()
			if s.watches != nil { // otherwise Close has begun
				s.watches[req.Owner] = w
			}
			s.mu.Unlock()
			return w.stop, nil
		}
	}
	w.stop()
	return nil, fmt.Errorf("waiting cannot be watched: %w", s.unreachable(watched, errs))
}

var errNoWatcher = fmt.Errorf("%w: it cannot tell when a lock is released, or only who queues for it", driver.ErrUnsupported)

// subscribe watches one member. Where whoever watches stands in a queue, its own votes
// would come after it, because they have other owners.
func (w *watch) subscribe(ctx context.Context, m *member, req driver.Request) error {
	watcher, ok := m.store.(driver.Watcher)
	if !ok || m.store.Traits().Queues {
		return errNoWatcher
	}
	var stop func()
	if err := m.call(ctx, func(ctx context.Context) (err error) {
		stop, err = watcher.Watch(ctx, req, func() { w.wake(m.index) })
		return err
	}); err != nil {
		return err
	}
	w.mu.Lock()
	stopped := w.stopped
	if !stopped {
		w.stops = append(w.stops, stop)
		w.subscribed.add(m.index)
		if w.begun { // it may have been released before
			w.woken.add(m.index)
			w.check()
		}
	}
	w.mu.Unlock()
	if stopped {
		stop()
		return errStopped
	}
	return nil
}

var errStopped = errors.New("the watch was stopped")

// wake is called by a member.
func (w *watch) wake(i int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.woken.add(i)
	w.check()
}

// check wakes the waiter if enough members have been released. Those that are not
// watched may have been. w.mu is held.
func (w *watch) check() {
	if w.stopped || w.recess != nil {
		return
	}
	all := everybody(len(w.s.members))
	blocked := all &^ w.free
	missing := w.s.rules.majority - w.free.len() - (blocked &^ w.subscribed).len()
	if (w.woken & blocked).len() >= max(missing, 1) {
		w.woken = 0
		w.wakeUp()
	}
}

// stop ends the watch: no wake-up comes after it.
func (w *watch) stop() {
	w.mu.Lock()
	w.stopped = true
	if w.recess != nil {
		w.recess.Stop()
	}
	stops := w.stops
	w.stops = nil
	w.mu.Unlock()
	for _, stop := range stops {
		stop()
	}
	s := w.s
	s.mu.Lock()
	if s.watches[w.owner] == w {
		delete(s.watches, w.owner)
	}
	s.mu.Unlock()
}

func (s *Store) watchOf(owner driver.Owner) *watch {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.watches) == 0 {
		return nil
	}
	return s.watches[owner]
}

// convene tells the watch of an owner that it votes: it will see what was released
// before.
func (s *Store) convene(owner driver.Owner) {
	w := s.watchOf(owner)
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.woken = 0
	w.resume()
}

// resume ends a recess. w.mu is held.
func (w *watch) resume() {
	if w.recess != nil {
		w.recess.Stop()
		w.recess = nil
	}
}

// blocked tells the watch of an owner that somebody else has the lock, and which
// members were free nevertheless.
func (s *Store) blocked(owner driver.Owner, free set) {
	w := s.watchOf(owner)
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.free = free
	w.check()
}

// adjourn wakes an owner that split a vote after a pause, and not before, whatever
// the others who split it give back.
func (s *Store) adjourn(owner driver.Owner, pause time.Duration) {
	w := s.watchOf(owner)
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.resume()
	w.free = 0
	var timer *time.Timer
	timer = time.AfterFunc(pause, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.recess == timer && !w.stopped {
			w.recess, w.woken = nil, 0
			w.wakeUp()
		}
	})
	w.recess = timer
}

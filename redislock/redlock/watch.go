package redlock

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// watch wakes one waiter when as many members have been released as were missing for a
// majority. Otherwise waiters would wake each other by giving back the few free members.
type watch struct {
	s     *Store
	owner driver.Owner
	wake  func()

	mu         sync.Mutex
	begun      bool // a majority is subscribed
	stopped    bool
	stops      []func()
	subscribed set
	woken      set       // members that were released since the last attempt began
	free       set       // members that granted the last attempt
	paused     time.Time // until when it does not wake the waiter, after a split vote
}

// Watch implements driver.Watcher. It returns as soon as a majority of the members
// is watched; fewer may miss a release.
func (s *Store) Watch(ctx context.Context, req driver.Request, wake func()) (stop func(), err error) {
	if err := s.begin(ctx); err != nil {
		return nil, err
	}
	defer s.work.Done()
	w := &watch{s: s, owner: req.Owner, wake: wake}
	if err := s.callAll(ctx, func(m *member) error { return w.subscribe(ctx, m, req) }); err != nil {
		w.stop()
		return nil, fmt.Errorf("a majority of the members cannot be watched: %w", err)
	}
	w.mu.Lock()
	w.begun = true
	w.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.watches != nil { // otherwise Close has begun
		s.watches[req.Owner] = w
	}
	return w.stop, nil
}

// subscribe watches one member.
func (w *watch) subscribe(ctx context.Context, m *member, req driver.Request) error {
	var stop func()
	if err := m.call(ctx, func(ctx context.Context) (err error) {
		stop, err = m.store.Watch(ctx, req, func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.woken.add(m.index)
			w.checkLocked()
		})
		return err
	}); err != nil {
		return err
	}
	w.mu.Lock()
	stopped := w.stopped
	if !stopped {
		w.stops = append(w.stops, stop)
		w.subscribed.add(m.index)
		if w.begun { // the member may have been released before
			w.woken.add(m.index)
			w.checkLocked()
		}
	}
	w.mu.Unlock()
	if stopped { // no caller waits for the outcome
		stop()
	}
	return nil
}

// checkLocked wakes the waiter if enough members have been released. Members that are not
// watched may have been.
func (w *watch) checkLocked() {
	if w.stopped || time.Now().Before(w.paused) {
		return
	}
	blocked := allMembers(len(w.s.members)) &^ w.free
	missing := w.s.majority - w.free.len() - (blocked &^ w.subscribed).len()
	if (w.woken & blocked).len() >= max(missing, 1) {
		w.woken = 0
		w.wake()
	}
}

// stop ends the watch. It does not wake the waiter after that.
func (w *watch) stop() {
	w.mu.Lock()
	w.stopped = true
	stops := w.stops
	w.stops = nil
	w.mu.Unlock()
	for _, stop := range stops {
		stop()
	}
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	if w.s.watches[w.owner] == w {
		delete(w.s.watches, w.owner)
	}
}

// withWatch calls f with the owner's watch locked, if there is one.
func (s *Store) withWatch(owner driver.Owner, f func(w *watch)) {
	s.mu.Lock()
	w := s.watches[owner]
	s.mu.Unlock()
	if w != nil {
		w.mu.Lock()
		defer w.mu.Unlock()
		f(w)
	}
}

// leavePause leaves the pause after a split vote to the waiter, which tries again at its end. It returns the
// refusal. What other contenders give back meanwhile does not wake the waiter.
func (s *Store) leavePause(a *acquisition, pause time.Duration) error {
	s.withWatch(a.owner, func(w *watch) { w.free, w.paused = 0, time.Now().Add(pause) })
	return &driver.HeldError{Name: a.name, Remaining: pause}
}

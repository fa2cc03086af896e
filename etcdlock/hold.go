package etcdlock

import (
	"context"
	"fmt"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/detach"
)

type holdID struct {
	name  string
	owner driver.Owner
}

// hold is what an owner has under a name: the lock, a place in the queue, or an attempt of
// unknown outcome. The mu of the store guards all fields but the first three.
type hold struct {
	holdID
	prefix string   // the queuePrefix of the name
	busy   ctxMutex // held by the call that asks the server about this hold

	lease         *lease // nil before the hold is bound to one
	mode          driver.Mode
	key           string
	value         string // of the key, unless it was downgraded
	revision      int64  // that created the key; zero if unknown
	position      position
	mismatch      int64 // the revision that created the last key in another mode that was the first
	mismatchFound time.Time
	held          bool
	unconfirmed   bool // a write or deletion of the key was not answered, and may still be carried out
	ended         bool // it is no longer in Store.holds

	ttl     time.Duration
	expires time.Time // unless it is renewed; zero before the first answer
	lost    func()    // may be nil
}

// ctxMutex is a mutex whose lock returns when a context ends. Its capacity is 1.
type ctxMutex chan struct{}

func (m ctxMutex) lock(ctx context.Context) error {
	select {
	case m <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (m ctxMutex) unlock()        { <-m }
func (m ctxMutex) isLocked() bool { return len(m) > 0 }

// lockHold returns the hold with that ID and locks it. If the hold does not exist, lockHold creates
// it, or returns nil if create is false.
func (s *Store) lockHold(ctx context.Context, id holdID, create bool) (*hold, error) {
	for {
		s.mu.Lock()
		h := s.holds[id]
		if h == nil && create {
			h = &hold{holdID: id, prefix: s.queuePrefix(id.name), busy: make(ctxMutex, 1)}
			s.holds[id] = h
		}
		s.mu.Unlock()
		if h == nil {
			return nil, nil
		}
		err := h.busy.lock(ctx)
		s.mu.Lock()
		if err != nil && h.lease == nil && h.expires.IsZero() && !h.busy.isLocked() { // no call uses it, or has used it
			s.endLocked(h) // else it would stay for ever
		}
		ended := h.ended
		s.mu.Unlock()
		switch {
		case err != nil:
			return nil, fmt.Errorf("%w: an earlier call has not ended: %w", driver.ErrUnreachable, err)
		case !ended:
			return h, nil
		}
		h.busy.unlock()
	}
}

// bind gives the hold a key on an etcd lease, if it has none. It returns false if the etcd lease
// takes no more locks. The caller has locked the hold.
func (s *Store) bind(h *hold, l *lease, mode driver.Mode) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h.lease == l {
		return true
	}
	if l.retired {
		return false
	}
	h.lease, h.mode, h.key, h.revision, h.position = l, mode, s.newKeyLocked(h.prefix, mode, l), 0, position{}
	l.holds[h] = struct{}{}
	s.keys[h.key] = h
	return true
}

// keyLostLocked takes key and etcd lease from a hold whose key is gone, and notifies its holder or
// its waiter. The next attempt of the owner begins anew.
func (s *Store) keyLostLocked(h *hold) {
	if h.held && h.lost != nil {
		s.backgroundLocked(h.lost)
	}
	if w := s.waiters[h.holdID]; w != nil && !h.held {
		w.wake()
	}
	s.unbindLocked(h)
	if h.held && !h.busy.isLocked() { // else the call that has locked it may begin anew
		s.endLocked(h)
	}
	h.held = false
}

// unbindLocked takes key and etcd lease from a hold.
func (s *Store) unbindLocked(h *hold) {
	l := h.lease
	if l == nil {
		return
	}
	delete(s.keys, h.key)
	delete(l.holds, h)
	if w := s.waiters[h.holdID]; w != nil {
		w.watch.unlocated[w] = struct{}{}
	}
	if h.unconfirmed {
		l.strayKeys[h.key] = struct{}{}
		l.retired = true
	}
	h.lease, h.key, h.revision, h.position, h.unconfirmed = nil, "", 0, position{}, false
	if l.retired && !l.gone && len(l.holds) == 0 {
		s.revokeInBackgroundLocked(l) // then no late request can write a key on it
	}
}

// endLocked forgets the hold.
func (s *Store) endLocked(h *hold) {
	h.ended, h.held = true, false
	if s.holds[h.holdID] == h {
		delete(s.holds, h.holdID)
	}
}

// dropLocked forgets a hold and its key, which is gone or was never written.
func (s *Store) dropLocked(h *hold) {
	s.endLocked(h)
	s.unbindLocked(h)
}

// detached calls do for a hold that the caller has locked, and unlocks it. If the caller's context
// ends first, detached returns and do goes on, because its outcome decides what has to be undone.
func (s *Store) detached(caller context.Context, h *hold, do func(ctx context.Context) outcome) outcome {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		h.busy.unlock()
		return outcome{err: driver.ErrClosed}
	}
	s.work.Add(1)
	ctx := s.callContextLocked()
	s.mu.Unlock()
	result, err := detach.Call(caller, s.workers.Go, func() outcome {
		defer s.work.Done()
		defer h.busy.unlock()
		return do(ctx)
	})
	if err != nil {
		return outcome{err: unanswered(caller)}
	}
	return result
}

// callContextLocked returns a context that ends callLimit from now, or up to a second later. The
// calls that begin within the same second share it, because creating one for each is a good part of
// the cost of a call. It has no deadline, because gRPC would tell the server, which would keep a
// timer too.
func (s *Store) callContextLocked() context.Context {
	if now := time.Now(); s.calls == nil || now.Sub(s.callsSince) > time.Second {
		ctx, cancel := context.WithCancelCause(s.ctx)
		time.AfterFunc(callLimit+time.Second, func() { cancel(errCallLimit) })
		s.calls, s.callsSince = ctx, now
	}
	return s.calls
}

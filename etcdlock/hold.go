package etcdlock

import (
	"context"
	"time"

	"github.com/dlock-go/dlock/driver"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// hold is what an owner has under a name: the lock, a place in the queue, or an
// attempt whose outcome is not known. Its fields but queue and turn are guarded by the
// mu of the store.
type hold struct {
	identity
	queue string        // what all keys of the name begin with
	turn  chan struct{} // full while somebody asks the server about it

	lease    *lease // nil before it is bound to one
	key      string
	revision int64 // that created the key; zero if that is not known
	place    place
	held     bool
	doubted  bool // an attempt to write or delete the key went unanswered and may still be carried out
	over     bool // another one with the same identity is to begin anew

	ttl     time.Duration
	expires time.Time // unless it comes again
	lost    func()    // may be nil
}

// enter waits for those who ask about the hold already.
func (h *hold) enter(ctx context.Context) error {
	select {
	case h.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (h *hold) leave() { <-h.turn }

// open returns the hold of the one who asks, a new one if there is none, and
// enters it.
func (s *Store) open(ctx context.Context, id identity) (*hold, error) {
	for {
		s.mu.Lock()
		h := s.holds[id]
		if h == nil {
			h = &hold{identity: id, queue: s.queueOf(id.name), turn: make(chan struct{}, 1)}
			s.holds[id] = h
		}
		s.mu.Unlock()
		if err := h.enter(ctx); err != nil {
			s.forgetUnused(h)
			return nil, err
		}
		s.mu.Lock()
		over := h.over
		s.mu.Unlock()
		if !over {
			return h, nil
		}
		h.leave()
	}
}

// forgetUnused forgets a hold for which nothing was asked.
func (s *Store) forgetUnused(h *hold) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h.lease == nil && h.expires.IsZero() && len(h.turn) == 0 {
		s.end(h)
	}
}

// find is open for those who expect a hold; nil if there is none.
func (s *Store) find(ctx context.Context, id identity) (*hold, error) {
	s.mu.Lock()
	h := s.holds[id]
	s.mu.Unlock()
	if h == nil {
		return nil, nil
	}
	if err := h.enter(ctx); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if h.over {
		h.leave()
		return nil, nil
	}
	return h, nil
}

// bind gives the hold a key on a lease, if it has none, unless that gets no more
// locks. Nobody but the one who is inside does so.
func (s *Store) bind(h *hold, l *lease) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h.lease == l {
		return true
	}
	if l.retired {
		return false
	}
	h.lease, h.key, h.revision, h.place = l, s.newKey(h.queue, l), 0, place{}
	l.holds[h] = struct{}{}
	s.keys[h.key] = h
	return true
}

// unbind takes key and lease from a hold whose key is gone: whoever asks again
// begins anew. It returns whom to tell. s.mu is held.
func (s *Store) unbind(h *hold) (tell []func()) {
	if h.held && h.lost != nil {
		tell = append(tell, h.lost)
	}
	if waits := s.waiting[h.identity]; waits != nil && !h.held {
		waits.wake()
	}
	s.free(h)
	if h.held && len(h.turn) == 0 { // whoever is inside decides what comes next
		s.end(h)
	}
	h.held = false
	return tell
}

// free takes key and lease from a hold. s.mu is held.
func (s *Store) free(h *hold) {
	l := h.lease
	if l == nil {
		return
	}
	delete(s.keys, h.key)
	delete(l.holds, h)
	if h.doubted {
		l.trash[h.key] = struct{}{}
		s.retire(l)
	}
	h.lease, h.key, h.revision, h.place, h.doubted = nil, "", 0, place{}, false
	s.settle(l)
}

// end forgets the hold. s.mu is held.
func (s *Store) end(h *hold) {
	h.over, h.held = true, false
	if s.holds[h.identity] == h {
		delete(s.holds, h.identity)
	}
}

// drop forgets a hold and its key, which is gone or was never written.
func (s *Store) drop(h *hold) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.end(h)
	s.free(h)
}

// carry does something for a hold that was entered, and leaves it. It returns when
// the caller's context ends; what it does goes on, because its outcome decides whether
// there is something to undo.
func carry[T any](caller context.Context, s *Store, h *hold, do func(ctx context.Context) T) (outcome T, err error) {
	done := make(chan T, 1)
	s.mu.Lock()
	ctx := s.callContext()
	begun := s.backgroundLocked(func() {
		defer h.leave()
		done <- do(ctx)
	})
	s.mu.Unlock()
	if !begun {
		h.leave()
		return outcome, driver.ErrClosed
	}
	select {
	case outcome = <-done:
		return outcome, nil
	case <-caller.Done():
		return outcome, context.Cause(caller)
	}
}

// callContext ends after callLimit, or a little later: the calls that begin within the
// same second share one, because to make and end one for each is a good part of what a
// call costs. It says no deadline, of which the server would keep track too. s.mu is held.
func (s *Store) callContext() context.Context {
	if now := time.Now(); s.calls == nil || now.Sub(s.callsSince) > time.Second {
		ctx, cancel := context.WithCancel(s.ctx)
		time.AfterFunc(callLimit+time.Second, cancel)
		s.calls, s.callsSince = ctx, now
	}
	return s.calls
}

// deletesAtOnce is below what a server allows in a transaction.
const deletesAtOnce = 100

// deleteAll deletes keys, whoever created them. After an error some of them may still be
// deleted later.
func (s *Store) deleteAll(ctx context.Context, keys []string) error {
	for len(keys) > 0 {
		n := min(len(keys), deletesAtOnce)
		ops := make([]clientv3.Op, n)
		for i, key := range keys[:n] {
			ops[i] = clientv3.OpDelete(key)
		}
		if _, err := s.tryOnce(ctx, func(ctx context.Context, c *conn) error {
			_, err := c.kv.Txn(ctx).Then(ops...).Commit()
			return err
		}); err != nil {
			return s.explain(err)
		}
		keys = keys[n:]
	}
	return nil
}

func (s *Store) refusal(name string, first holderKey) *driver.HeldError {
	return &driver.HeldError{Name: name, Token: uint64(first.revision), Holder: first.holder()}
}

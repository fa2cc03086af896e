package etcdlock

import (
	"context"
	"errors"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/tokenstep"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// Acquire implements driver.Store. An attempt is one transaction. A waiter, whose request has
// Queue or is watched, keeps a place in the queue.
func (s *Store) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	if err := s.ensureConnected(ctx); err != nil {
		return driver.Grant{}, err
	}
	h, err := s.lockHold(ctx, holdID{req.Name, req.Owner}, true)
	if err != nil {
		return driver.Grant{}, err
	}
	if o, known := s.outcomeFromWatch(h, &req); known {
		h.busy.unlock()
		return o.grant, o.err
	}
	o := s.detached(ctx, h, func(call context.Context) outcome { return s.attempt(call, ctx, h, &req) })
	return o.grant, o.err
}

// outcome is the result of an attempt, or of a release, which has no grant.
type outcome struct {
	grant driver.Grant
	err   error
}

// attempt asks at least once, and again only while the caller waits: a second request could take a
// lock that no caller wants. The context of the requests is call, which outlives caller.
func (s *Store) attempt(call, caller context.Context, h *hold, req *driver.Request) outcome {
	var state attemptState
	for asked := false; !asked || caller.Err() == nil; asked = true {
		l, err := s.bindToLease(call, h, req)
		if err != nil {
			return outcome{err: s.attemptFailed(h, req, err)}
		}
		if o, known := s.outcomeFromWatch(h, req); known { // now that the etcd lease was renewed
			return o
		}
		v, again, err := s.sendNext(call, caller, h, req, state)
		if isError(err, rpctypes.ErrLeaseNotFound) {
			s.leaseLost(l)
			continue
		}
		if again {
			continue
		}
		if err != nil {
			return outcome{err: s.attemptFailed(h, req, s.explain(call, err))}
		}
		if o, decided := s.decide(h, req, v, &state); decided {
			if errors.Is(o.err, driver.ErrMode) || o.err != nil && state.races >= maxRaces { // gives up its place
				if err := s.release(call, h, 0); err != nil && !errors.Is(err, driver.ErrNotHeld) {
					o.err = err
				}
			}
			return o
		}
	}
	return outcome{err: s.attemptFailed(h, req, context.Cause(caller))}
}

// sendNext sends the next request of an attempt, and reports whether to ask again.
func (s *Store) sendNext(call, caller context.Context, h *hold, req *driver.Request, state attemptState) (v queueView, again bool, err error) {
	t, crowd, ok := s.nextTxn(h, req, state)
	switch {
	case !ok: // the etcd lease has just ended
		return v, true, nil
	case crowd != nil:
		return s.readQueue(call, crowd, h)
	}
	reply, tries, err := retryWhile(call, caller, s, t.send)
	if tries > 1 {
		s.attemptUnconfirmed(h, req.TTL)
	}
	if err == nil {
		v = t.read(reply)
	}
	return v, false, err
}

// bindToLease makes sure that the hold has a key, on an etcd lease that was just renewed.
func (s *Store) bindToLease(ctx context.Context, h *hold, req *driver.Request) (*lease, error) {
	for {
		l := s.leaseFor(h, req.TTL)
		err := s.renewIfOld(ctx, l)
		switch {
		case errors.Is(err, errLeaseGone) && ctx.Err() == nil: // renewIfOld has unbound the hold
		case err != nil:
			return nil, err
		case s.bind(h, l, req.Mode):
			return l, nil
		}
	}
}

// decide turns an answer into a grant or a refusal. It returns false if the server has to be asked
// again: the hold has lost its etcd lease or its key, or state says what else to ask.
func (s *Store) decide(h *hold, req *driver.Request, v queueView, state *attemptState) (outcome, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	placed := h.revision != 0
	switch {
	case s.closed: // Close would not report the loss of a grant
		return outcome{err: driver.ErrClosed}, true
	case h.lease == nil:
		return outcome{}, false
	case v.ownRevision == 0 && placed: // the key was deleted
		h.lost = nil // the owner learns it from the answer
		s.keyLostLocked(h)
		return outcome{}, false
	case v.ownRevision != 0 && (h.held || v.aheadAllow()): // granted, for as long as the key exists
		return outcome{grant: s.recordGrantLocked(h, req, v.ownRevision)}, true
	case v.ownRevision != 0: // in the queue
		s.recordPlaceLocked(h, req, v)
		if v.existed { // what is ahead was not read
			return outcome{}, false
		}
	case v.aheadAllow(): // free when the server answered: take it, unless a key was written since
		state.freeAt, state.races = v.revision, state.races+1
		state.enqueue = state.races >= maxRaces
		return outcome{}, false
	case req.Queue && v.first.mode.Shared && !state.enqueue: // take a place, so as not to starve behind shared holders
		state.enqueue = true
		return outcome{}, false
	default: // refused
		s.dropLocked(h)
	}
	inUse := v.first.mode
	if inUse.Limit == req.Mode.Limit || placed && s.mayWithdrawLocked(h, v.first) {
		return outcome{err: heldError(h.name, v.first)}, true
	}
	return outcome{err: &driver.ModeError{Name: h.name, Mode: inUse}}, true
}

// recordGrantLocked records that the hold has the lock.
func (s *Store) recordGrantLocked(h *hold, req *driver.Request, revision int64) driver.Grant {
	ttl := h.lease.grantedTTL(req.TTL)
	if !h.held || h.ttl < ttl { // another attempt never shortens it
		h.ttl = ttl
	}
	h.held, h.revision, h.lost = true, revision, req.Lost
	s.setExpiryLocked(h, time.Now().Add(h.ttl))
	return driver.Grant{Name: h.name, Owner: h.owner, Token: tokenOf(revision), TTL: ttl, Handle: handle(h.key)}
}

// recordPlaceLocked records that the hold has a place in the queue.
func (s *Store) recordPlaceLocked(h *hold, req *driver.Request, v queueView) {
	h.held, h.revision = false, v.ownRevision
	h.position = position{queueView: v, stale: true}
	s.setExpiryLocked(h, time.Now().Add(req.TTL))
	s.keepLeaseLocked(h)
	// A key ahead may have been deleted since the answer. If what is ahead was not read, the attempt asks again.
	if w := s.waiters[h.holdID]; w != nil && !v.existed && (s.locateLocked(h) && h.position.isFree() || !h.position.follow(w.watch)) {
		w.wake()
	}
}

// attemptUnconfirmed records that the server may still carry out an attempt.
func (s *Store) attemptUnconfirmed(h *hold, ttl time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h.lease != nil && h.revision == 0 {
		h.unconfirmed = true
		s.setExpiryLocked(h, time.Now().Add(ttl))
	}
}

// attemptFailed records an attempt that failed, perhaps with an unknown outcome, and returns err.
func (s *Store) attemptFailed(h *hold, req *driver.Request, err error) error {
	if rejectionOf(err) == nil || isError(err, rpctypes.ErrNoSpace) { // etcd looks for space once more after a write
		s.attemptUnconfirmed(h, req.TTL)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if h.revision == 0 && !h.unconfirmed {
		s.dropLocked(h)
	}
	return err
}

// tokenOf returns the first token of the lock whose key was created by that revision.
func tokenOf(revision int64) uint64 { return tokenstep.First(uint64(revision)) }

func heldError(name string, first holderKey) *driver.HeldError {
	return &driver.HeldError{Name: name, Token: tokenOf(first.revision), Mode: first.mode, Holder: driver.DecodeHolder(string(first.value))}
}

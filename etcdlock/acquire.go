package etcdlock

import (
	"context"
	"errors"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/span"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// Acquire implements driver.Store. An attempt is one transaction. A waiter, whose request has
// Queue or is watched, keeps a place in the queue.
func (s *Store) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	if err := s.usable(ctx); err != nil {
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

// attempt asks once, and again if the lease has ended, but only while the caller waits: asking
// again could take a lock that no caller wants.
func (s *Store) attempt(ctx, caller context.Context, h *hold, req *driver.Request) outcome {
	for asked := false; !asked || caller.Err() == nil; asked = true {
		l, err := s.bindToLease(ctx, h, req.TTL)
		if err != nil {
			return outcome{err: s.attemptFailed(h, req, err)}
		}
		if o, known := s.outcomeFromWatch(h, req); known { // now that the lease was renewed
			return o
		}
		q, ok := s.nextQuery(h, req)
		if !ok { // the lease has just ended
			continue
		}
		reply, again, err := tryOnce(ctx, s, q.send)
		if errors.Is(err, rpctypes.ErrLeaseNotFound) {
			s.leaseLost(l)
			continue
		}
		if again {
			s.attemptUnconfirmed(h, req.TTL)
			continue
		}
		if err != nil {
			return outcome{err: s.attemptFailed(h, req, s.explain(ctx, err))}
		}
		if o, decided := s.decide(h, req, q.read(reply)); decided {
			return o
		}
	}
	return outcome{err: s.attemptFailed(h, req, context.Cause(caller))}
}

// bindToLease makes sure that the hold has a key, on a lease that was just renewed.
func (s *Store) bindToLease(ctx context.Context, h *hold, ttl time.Duration) (*lease, error) {
	for {
		l := s.leaseFor(h, ttl)
		err := s.refresh(ctx, l)
		switch {
		case errors.Is(err, errLeaseGone) && ctx.Err() == nil: // which unbinds the hold
		case err != nil:
			return nil, err
		case s.bind(h, l):
			return l, nil
		}
	}
}

// decide turns the answer to a query into a grant or a refusal. It returns false if the server
// has to be asked again, because the hold has lost its lease or its key.
func (s *Store) decide(h *hold, req *driver.Request, v queueView) (outcome, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case h.lease == nil:
		return outcome{}, false
	case v.own == 0 && h.revision != 0: // the key was deleted
		h.lost = nil // the owner learns it from the answer
		s.keyLost(h)
		return outcome{}, false
	case v.own != 0 && v.first.revision == v.own:
		return outcome{grant: s.granted(h, req, v.own)}, true
	case v.own != 0:
		s.queued(h, req, v)
	default:
		s.drop(h)
	}
	return outcome{err: heldError(h.name, v.first)}, true
}

// granted records that the hold has the lock. The caller holds s.mu.
func (s *Store) granted(h *hold, req *driver.Request, revision int64) driver.Grant {
	ttl := h.lease.grantedTTL(req.TTL)
	if !h.held || h.ttl < ttl { // asking again never shortens
		h.ttl = ttl
	}
	h.held, h.revision, h.lost = true, revision, req.Lost
	s.expireAt(h, time.Now().Add(h.ttl))
	return driver.Grant{Name: h.name, Owner: h.owner, Token: tokenOf(revision), Span: span.Size, TTL: ttl, Handle: handle(h.key)}
}

// queued records that the hold has a place in the queue. The caller holds s.mu.
func (s *Store) queued(h *hold, req *driver.Request, v queueView) {
	h.held, h.revision = false, v.own
	h.place = newPlace(v)
	s.expireAt(h, time.Now().Add(req.TTL))
	s.keepLease(h)
	// A key ahead may have been deleted since the answer.
	if w := s.waiters[h.holdID]; w != nil && !h.place.follow(w.watch) {
		w.wake()
	}
}

// attemptUnconfirmed records that an attempt may still be carried out.
func (s *Store) attemptUnconfirmed(h *hold, ttl time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h.lease != nil && h.revision == 0 {
		h.unconfirmed = true
		s.expireAt(h, time.Now().Add(ttl))
	}
}

// attemptFailed records an attempt without an outcome, and returns err.
func (s *Store) attemptFailed(h *hold, req *driver.Request, err error) error {
	if rejectionOf(err) == nil {
		s.attemptUnconfirmed(h, req.TTL)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if h.revision == 0 && !h.unconfirmed {
		s.drop(h)
	}
	return err
}

// tokenOf returns the first token of the lock whose key was created by that revision.
func tokenOf(revision int64) uint64 { return span.First(uint64(revision)) }

func heldError(name string, first holderKey) *driver.HeldError {
	return &driver.HeldError{Name: name, Token: tokenOf(first.revision), Holder: driver.DecodeHolder(string(first.value))}
}

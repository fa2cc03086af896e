package etcdlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dlock-go/dlock/driver"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Renew implements driver.Store. One message renews an etcd lease and with it all its locks.
// Transactions that write nothing check their keys.
func (s *Store) Renew(ctx context.Context, grants []driver.Grant) []error {
	if err := s.ensureConnected(ctx); err != nil {
		return slices.Repeat([]error{err}, len(grants))
	}
	errs := make([]error, len(grants))
	for l, renewals := range s.byLease(grants, errs) {
		s.renewAll(ctx, l, renewals)
	}
	if slices.ContainsFunc(errs, func(err error) bool { return err != nil }) {
		return errs
	}
	return nil
}

type renewal struct {
	hold  *hold
	token uint64
	err   *error // its result
}

// byLease groups the grants by their etcd leases. It sets the errors of those that are not held.
func (s *Store) byLease(grants []driver.Grant, errs []error) map[*lease][]renewal {
	s.mu.Lock()
	defer s.mu.Unlock()
	leases := make(map[*lease][]renewal)
	for i, g := range grants {
		r := renewal{s.holds[holdID{g.Name, g.Owner}], g.Token, &errs[i]}
		if r.hold == nil || !r.isHeld() {
			errs[i] = driver.ErrNotHeld
			continue
		}
		leases[r.hold.lease] = append(leases[r.hold.lease], r)
	}
	return leases
}

// isHeld reports whether the lock is still held with the token of the grant. Zero stands for any.
func (r *renewal) isHeld() bool {
	return r.hold.held && (r.token == 0 || tokenOf(r.hold.revision) == r.token)
}

// renewAll renews an etcd lease and checks its locks.
func (s *Store) renewAll(ctx context.Context, l *lease, renewals []renewal) {
	err := s.renewAndClean(ctx, l)
	if errors.Is(err, errLeaseGone) {
		err = fmt.Errorf("%w: %w", driver.ErrNotHeld, err)
	}
	if err == nil {
		renewals, err = inTxns(s, renewals, func(part []renewal) error { return s.checkKeys(ctx, part) })
	}
	for _, r := range renewals {
		*r.err = err
	}
}

// checkKeys prolongs the holds whose keys still exist.
func (s *Store) checkKeys(ctx context.Context, renewals []renewal) error {
	ops := make([]clientv3.Op, len(renewals))
	s.mu.Lock()
	for i, r := range renewals { // a hold that was lost meanwhile has no key
		ops[i] = clientv3.OpGet(cmp.Or(r.hold.key, r.hold.prefix), clientv3.WithKeysOnly())
	}
	s.mu.Unlock()
	reply, _, err := retry(ctx, s, txn{then: ops}.send)
	if err != nil {
		return s.explain(ctx, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, r := range renewals {
		h, revision := r.hold, readFirst(r.hold.prefix, reply.Responses[i].GetResponseRange().Kvs).revision
		switch {
		case !r.isHeld(): // lost, released or expired meanwhile
			*r.err = driver.ErrNotHeld
		case revision != h.revision:
			*r.err = driver.ErrNotHeld
			h.lost = nil            // the owner learns it from the error
			if !h.busy.isLocked() { // else the call that has locked it finds out
				s.keyLostLocked(h)
			}
		default:
			s.setExpiryLocked(h, time.Now().Add(h.ttl))
		}
	}
	return nil
}

package etcdlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dlock-go/dlock/driver"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Renew implements driver.Store. One message renews a lease and with it all its locks. A
// transaction that writes nothing checks maxOps keys at a time.
func (s *Store) Renew(ctx context.Context, grants []driver.Grant) []error {
	if err := s.usable(ctx); err != nil {
		return slices.Repeat([]error{err}, len(grants))
	}
	errs := make([]error, len(grants))
	for l, renewals := range s.byLease(grants, errs) {
		if err := s.renewAll(ctx, l, renewals); err != nil {
			for _, r := range renewals {
				if *r.err == nil {
					*r.err = err
				}
			}
		}
	}
	if slices.ContainsFunc(errs, func(err error) bool { return err != nil }) {
		return errs
	}
	return nil
}

// renewal is the renewal of one grant.
type renewal struct {
	hold  *hold
	token uint64
	err   *error // its result
}

// byLease sorts the grants by their leases. It sets the errors of those that are not held.
func (s *Store) byLease(grants []driver.Grant, errs []error) map[*lease][]renewal {
	s.mu.Lock()
	defer s.mu.Unlock()
	leases := make(map[*lease][]renewal)
	for i, g := range grants {
		r := renewal{s.holds[holdID{g.Name, g.Owner}], g.Token, &errs[i]}
		if r.hold == nil || !r.holds() {
			errs[i] = driver.ErrNotHeld
			continue
		}
		leases[r.hold.lease] = append(leases[r.hold.lease], r)
	}
	return leases
}

// holds reports whether the lock is still held with the token of the grant.
func (r *renewal) holds() bool { return r.hold.held && tokenOf(r.hold.revision) == r.token }

// renewAll renews a lease and checks its locks.
func (s *Store) renewAll(ctx context.Context, l *lease, renewals []renewal) error {
	err := s.renewLease(ctx, l)
	if errors.Is(err, errLeaseGone) {
		return fmt.Errorf("%w: %w", driver.ErrNotHeld, err)
	}
	for chunk := range slices.Chunk(renewals, maxOps) {
		if err != nil {
			break
		}
		err = s.checkKeys(ctx, chunk)
	}
	return err
}

// checkKeys prolongs the holds whose keys still exist.
func (s *Store) checkKeys(ctx context.Context, renewals []renewal) error {
	var ops []clientv3.Op
	var asked []renewal
	s.mu.Lock()
	for _, r := range renewals {
		if r.hold.key == "" { // lost meanwhile
			*r.err = driver.ErrNotHeld
			continue
		}
		ops, asked = append(ops, clientv3.OpGet(r.hold.key, clientv3.WithKeysOnly())), append(asked, r)
	}
	s.mu.Unlock()
	if len(ops) == 0 {
		return nil
	}
	reply, err := try(ctx, s, query{then: ops}.send)
	if err != nil {
		return s.explain(ctx, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, r := range asked {
		h, revision := r.hold, readFirst(reply.Responses[i].GetResponseRange().Kvs).revision
		switch {
		case !r.holds(): // lost, released or expired meanwhile
			*r.err = driver.ErrNotHeld
		case revision != h.revision:
			*r.err = driver.ErrNotHeld
			h.lost = nil            // the owner learns it from the error
			if !h.busy.isLocked() { // else the call that has locked it finds out
				s.keyLost(h)
			}
		default:
			s.expireAt(h, time.Now().Add(h.ttl))
		}
	}
	return nil
}

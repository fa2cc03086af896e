package etcdlock

import (
	"context"
	"errors"
	"time"

	"github.com/dlock-go/dlock/driver"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Renew implements driver.Store. One message renews the lease and with it all its
// locks; whether each of them is still there, a transaction that writes nothing
// says for a hundred of them at a time.
func (s *Store) Renew(ctx context.Context, grants []driver.Grant) []error {
	r := renewal{store: s, grants: grants, errs: make([]error, len(grants)), holds: make([]*hold, len(grants))}
	if err := s.usable(ctx); err != nil {
		r.failAll(err)
		return r.outcome()
	}
	for l, indices := range r.byLease() {
		err := s.refresh(ctx, l)
		if err == nil {
			s.sweep(ctx, l)
			err = r.check(ctx, indices)
		}
		if err != nil {
			r.fail(indices, explainLease(failureOf(ctx, err)))
		}
	}
	return r.outcome()
}

// renewal is one call of Renew.
type renewal struct {
	store  *Store
	grants []driver.Grant
	errs   []error
	holds  []*hold
}

func (r *renewal) fail(indices []int, err error) {
	for _, i := range indices {
		if r.errs[i] == nil {
			r.errs[i] = err
		}
	}
}

func (r *renewal) failAll(err error) {
	for i := range r.errs {
		r.errs[i] = err
	}
}

// outcome is nil if nothing failed.
func (r *renewal) outcome() []error {
	for _, err := range r.errs {
		if err != nil {
			return r.errs
		}
	}
	return nil
}

// byLease sorts the grants by their leases, and out what is not held.
func (r *renewal) byLease() map[*lease][]int {
	s := r.store
	s.mu.Lock()
	defer s.mu.Unlock()
	leases := make(map[*lease][]int)
	for i := range r.grants {
		g := &r.grants[i]
		h := s.holds[identity{g.Name, g.Owner}]
		if h == nil || !h.held || uint64(h.revision) != g.Token {
			r.errs[i] = driver.ErrNotHeld
			continue
		}
		r.holds[i] = h
		leases[h.lease] = append(leases[h.lease], i)
	}
	return leases
}

// getsAtOnce is below what a server allows in a transaction.
const getsAtOnce = 100

// check looks whether the keys still exist.
func (r *renewal) check(ctx context.Context, indices []int) error {
	for len(indices) > 0 {
		n := min(len(indices), getsAtOnce)
		if err := r.checkSome(ctx, indices[:n]); err != nil {
			r.fail(indices, err)
			return err
		}
		indices = indices[n:]
	}
	return nil
}

func (r *renewal) checkSome(ctx context.Context, indices []int) error {
	s := r.store
	var ops []clientv3.Op
	var asked []int
	s.mu.Lock()
	for _, i := range indices {
		h := r.holds[i]
		if h.key == "" { // lost meanwhile
			r.errs[i] = driver.ErrNotHeld
			continue
		}
		ops, asked = append(ops, clientv3.OpGet(h.key, clientv3.WithKeysOnly())), append(asked, i)
	}
	s.mu.Unlock()
	if len(ops) == 0 {
		return nil
	}
	var reply *clientv3.TxnResponse
	if err := s.try(ctx, func(ctx context.Context, c *conn) (err error) {
		reply, err = c.kv.Txn(ctx).Then(ops...).Commit()
		return err
	}); err != nil {
		return s.explain(err)
	}
	for n, i := range asked {
		found := readFirst(reply.Responses[n].GetResponseRange().Kvs)
		r.found(i, found.revision)
	}
	return nil
}

// found prolongs a hold whose key was created by that revision, if it is its own.
func (r *renewal) found(i int, revision int64) {
	s, h := r.store, r.holds[i]
	s.mu.Lock()
	var tell []func()
	switch {
	case !h.held || uint64(h.revision) != r.grants[i].Token: // lost, released or expired meanwhile
		r.errs[i] = driver.ErrNotHeld
	case revision != h.revision:
		r.errs[i] = driver.ErrNotHeld
		h.lost = nil // the answer says it
		tell = s.unbindUnlessBusy(h)
	default:
		s.expireAt(h, time.Now().Add(h.ttl))
	}
	s.mu.Unlock()
	for _, f := range tell {
		f()
	}
}

// failureOf says of a call that the end of its context is the reason.
func failureOf(ctx context.Context, err error) error {
	if ctx.Err() != nil && !errors.Is(err, errLeaseGone) {
		return context.Cause(ctx)
	}
	return err
}

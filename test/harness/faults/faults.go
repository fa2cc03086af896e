// Package faults subjects real processes to the faults that occur in production,
// and checks what a store and the library promise in that case. A [Fault] is a
// scenario that the tests of every store run on a bundle.Store of their own.
package faults

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/test/harness/await"
	"github.com/dlock-go/dlock/test/harness/bundle"
	"github.com/dlock-go/dlock/test/harness/history"
	"github.com/dlock-go/dlock/test/harness/proxy"
)

// rig is the store that a fault happens to.
type rig struct{ bundle.Store }

// Fault is a scenario: a fault, and the behavior that is expected.
type Fault struct {
	Name string
	try  func(t *testing.T, r rig)
}

// maxConcurrent limits the faults that run at the same time.
const maxConcurrent = 12

// Run runs all faults on one store, several at a time. Faults spend most of their
// time waiting, so more of them fit on a machine than tests that compute.
func Run(t *testing.T, s bundle.Store, faults []Fault) {
	t.Helper()
	RunEach(t, func(testing.TB) bundle.Store { return s }, faults)
}

// RunEach runs each fault on a store of its own. It is for faults that other tests
// on the same server would notice.
func RunEach(t *testing.T, store func(t testing.TB) bundle.Store, faults []Fault) {
	t.Helper()
	slots := make(chan struct{}, maxConcurrent)
	var all sync.WaitGroup
	for _, fault := range faults {
		all.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			t.Run(fault.Name, func(t *testing.T) { fault.try(t, rig{store(t)}) })
		})
	}
	all.Wait()
}

const (
	// slack is how late a busy machine may notice an event.
	slack = 5 * time.Second
	// limit bounds the wait for an event that must happen.
	limit = 30 * time.Second
)

// late returns how long after the end of its TTL a lock may still be visible.
func (r rig) late(t testing.TB) time.Duration {
	t.Helper()
	return r.open(t).Traits().Granularity + slack
}

func (r rig) open(t testing.TB) driver.Store {
	t.Helper()
	store, err := r.Open(t.Context(), r.URL)
	if err != nil {
		t.Fatalf("open the store: %v", err)
	}
	t.Cleanup(func() {
		// A fault may have removed the server for good, so that the store cannot
		// clean up.
		if err := store.Close(); err != nil && !errors.Is(err, driver.ErrUnreachable) {
			t.Errorf("close the store: %v", err)
		}
	})
	return store
}

func (r rig) client(t testing.TB) *dlock.Client {
	t.Helper()
	return r.clientWith(t, nil)
}

func (r rig) clientWith(t testing.TB, opts *dlock.Options) *dlock.Client {
	t.Helper()
	return clientOf(t, r.open(t), opts)
}

func clientOf(t testing.TB, store driver.Store, opts *dlock.Options) *dlock.Client {
	t.Helper()
	c := dlock.New(store, opts)
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return c
}

func (r rig) lock(t testing.TB, c *dlock.Client, name string, opts ...dlock.Option) *dlock.Lease {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*r.TTL+limit)
	defer cancel()
	lease, err := c.Lock(ctx, name, append([]dlock.Option{dlock.WithTTL(r.TTL)}, opts...)...)
	if err != nil {
		t.Fatalf("Lock(%q): %v", name, err)
	}
	return lease
}

// acquireWhenFree polls the store until it mustBeFree the lock. at is a time at which
// the lock was granted already.
func (r rig) acquireWhenFree(t testing.TB, store driver.Store, name string) (grant driver.Grant, at int64) {
	t.Helper()
	grant, _, at = r.acquireTimed(t, store, name)
	return grant, at
}

// acquireTimed is acquireWhenFree, and returns also when it asked: the lock was granted after that.
func (r rig) acquireTimed(t testing.TB, store driver.Store, name string) (grant driver.Grant, asked time.Time, at int64) {
	t.Helper()
	req := driver.Request{Name: name, Owner: driver.NewOwner(), TTL: r.TTL}
	deadline := time.Now().Add(10*r.TTL + limit)
	for {
		asked = time.Now()
		grant, err := store.Acquire(t.Context(), req)
		at = history.Now()
		switch {
		case err == nil:
			return grant, asked, at
		case !errors.Is(err, driver.ErrHeld):
			t.Fatalf("Acquire(%q): %v", name, err)
		case time.Now().After(deadline):
			t.Fatalf("%q does not become free: %v", name, err)
		}
		wait(t, time.Millisecond)
	}
}

// mustBeHeld checks that the lock is held, and returns what the store reports
// about it.
func (r rig) mustBeHeld(t testing.TB, name string, why string) dlock.HeldError {
	t.Helper()
	lease, err := r.client(t).TryLock(t.Context(), name, dlock.WithTTL(r.TTL))
	held, ok := errors.AsType[*dlock.HeldError](err)
	if !ok {
		t.Errorf("TryLock(%q): %v; want that it is held: %s", name, err, why)
		if err == nil {
			unlock(t, lease)
		}
		return dlock.HeldError{}
	}
	return *held
}

// mustHaveToken checks that the lock that the store reported has still the token, if the store says.
func (r rig) mustHaveToken(t testing.TB, held dlock.HeldError, token uint64) {
	t.Helper()
	if held.Token != 0 && held.Token != token {
		t.Errorf("the lock has token %d now, and had %d", held.Token, token)
	}
}

// mustBeFree checks that the lock is free, and returns the token of a new grant.
func (r rig) mustBeFree(t testing.TB, name string, why string) (token uint64) {
	t.Helper()
	lease, err := r.client(t).TryLock(t.Context(), name, dlock.WithTTL(r.TTL))
	if err != nil {
		t.Errorf("TryLock(%q): %v; want that it is free: %s", name, err, why)
		return 0
	}
	unlock(t, lease)
	return lease.Token()
}

// proxied puts a proxy in front of the server.
func (r rig) proxied(t testing.TB) (rig, *proxy.Proxy) {
	t.Helper()
	through, p := r.Proxied(t)
	return rig{through}, p
}

// mentions returns a filter for the requests about a lock. While the lock is held
// and has no waiters, these are renewals.
func mentions(name string) func(request []byte) bool {
	return func(request []byte) bool { return bytes.Contains(request, []byte(name)) }
}

func unlock(t testing.TB, lease *dlock.Lease) {
	t.Helper()
	if err := lease.Unlock(context.Background()); err != nil {
		t.Errorf("Unlock(%q): %v", lease.Name(), err)
	}
}

// unlockLost unlocks a lease that must be lost already.
func unlockLost(t testing.TB, lease *dlock.Lease) {
	t.Helper()
	if err := lease.Unlock(context.Background()); !errors.Is(err, dlock.ErrNotHeld) {
		t.Errorf("Unlock(%q) returned %v; want ErrNotHeld", lease.Name(), err)
	}
}

// stillTrusted checks that a lease has not ended.
func stillTrusted(t testing.TB, lease *dlock.Lease) {
	t.Helper()
	if err := lease.Context().Err(); err != nil {
		t.Errorf("the lease of %q has ended: %v", lease.Name(), err)
	}
}

// attempt is the outcome of a Lock.
type attempt struct {
	lease *dlock.Lease
	err   error
}

// lockAsync requests a lock in the background.
func (r rig) lockAsync(ctx context.Context, c *dlock.Client, name string, opts ...dlock.Option) <-chan attempt {
	done := make(chan attempt, 1)
	go func() {
		lease, err := c.Lock(ctx, name, append([]dlock.Option{dlock.WithTTL(r.TTL)}, opts...)...)
		done <- attempt{lease, err}
	}()
	return done
}

// served waits for a lock that was requested in the background.
func served(t testing.TB, later <-chan attempt) *dlock.Lease {
	t.Helper()
	got := await.Event(t, later, "the lock")
	if got.err != nil {
		t.Fatalf("Lock: %v", got.err)
	}
	return got.lease
}

// inTime checks that what has just happened did so within limit of start.
func inTime(t testing.TB, start time.Time, limit time.Duration, what string) {
	t.Helper()
	if took := time.Since(start); took > limit {
		t.Errorf("%s only after %v; want at most %v", what, took, limit)
	}
}

// rises checks that a token is larger than one that was granted before.
func rises(t testing.TB, token, before uint64) {
	t.Helper()
	if token <= before {
		t.Errorf("token %d after %d", token, before)
	}
}

// fenced is a resource that rejects a token smaller than the largest it has seen.
type fenced struct{ seen uint64 }

func (f *fenced) write(token uint64) bool {
	if token < f.seen {
		return false
	}
	f.seen = token
	return true
}

func (f *fenced) accepts(t testing.TB, token uint64) {
	t.Helper()
	if !f.write(token) {
		t.Errorf("a write with token %d was rejected after token %d", token, f.seen)
	}
}

func (f *fenced) rejects(t testing.TB, token uint64) {
	t.Helper()
	if seen := f.seen; f.write(token) {
		t.Errorf("a stale write with token %d was accepted after token %d", token, seen)
	}
}

func release(t testing.TB, store driver.Store, grant driver.Grant) {
	t.Helper()
	if err := store.Release(t.Context(), grant); err != nil {
		t.Errorf("Release(%q): %v", grant.Name, err)
	}
}

// wait blocks for d.
func wait(t testing.TB, d time.Duration) {
	t.Helper()
	select {
	case <-time.After(d):
	case <-t.Context().Done():
		t.Fatal("the test ended")
	}
}

// Package want has what the tests of a store say again and again: calls that must succeed, and errors
// that calls must return.
package want

import (
	"context"
	"errors"
	"testing"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/test/harness/await"
)

// OK ends the test if a call failed.
func OK(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Value returns the result of a call, and ends the test if it failed: want.Value(call())(t).
func Value[T any](result T, err error) func(t testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		OK(t, err)
		return result
	}
}

// Err returns the error of a call that has a result, too.
func Err[T any](_ T, err error) error { return err }

// Error checks the error of a call.
func Error(t testing.TB, what string, err, target error) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Errorf("%s: %v; want %q", what, err, target)
	}
}

// Acquire returns the grant of a request, which must be granted at once.
func Acquire(t testing.TB, store driver.Store, req driver.Request) driver.Grant {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), await.Limit)
	defer cancel()
	grant, err := store.Acquire(ctx, req)
	if err != nil {
		t.Fatalf("Acquire(%q): %v", req.Name, err)
	}
	return grant
}

// Held checks that a request is refused, because of why.
func Held(t testing.TB, store driver.Store, req driver.Request, why string) {
	t.Helper()
	if grant, err := store.Acquire(t.Context(), req); !errors.Is(err, driver.ErrHeld) {
		t.Fatalf("Acquire(%q): token %d, %v; want ErrHeld: %s", req.Name, grant.Token, err, why)
	}
}

// Release releases what is held.
func Release(t testing.TB, store driver.Store, grants ...driver.Grant) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), await.Limit)
	defer cancel()
	for _, grant := range grants {
		if err := store.Release(ctx, grant); err != nil {
			t.Errorf("Release(%q): %v", grant.Name, err)
		}
	}
}

// Undo is the grant by which the owner of a request gives up what it has, a place or an attempt.
func Undo(req driver.Request) driver.Grant { return driver.Grant{Name: req.Name, Owner: req.Owner} }

// Renew renews what is held.
func Renew(t testing.TB, store driver.Store, when string, grants ...driver.Grant) {
	t.Helper()
	if err := RenewError(t, store, grants...); err != nil {
		t.Errorf("Renew %s: %v", when, err)
	}
}

// RenewError returns the errors of a renewal, joined.
func RenewError(t testing.TB, store driver.Store, grants ...driver.Grant) error {
	t.Helper()
	return errors.Join(store.Renew(t.Context(), grants)...)
}

// Watch makes a request that of a waiter until the end of the test, and returns its notifications.
func Watch(t testing.TB, store driver.Store, req driver.Request) (woken <-chan struct{}) {
	t.Helper()
	wakes := make(chan struct{}, 1)
	stop := Value(store.(driver.Watcher).Watch(t.Context(), req, func() {
		select {
		case wakes <- struct{}{}:
		default:
		}
	}))(t)
	t.Cleanup(stop)
	return wakes
}

// Break breaks a lock through a store that did not acquire it.
func Break(t testing.TB, store driver.Store, grant driver.Grant) {
	t.Helper()
	if err := store.(driver.Breaker).Break(t.Context(), grant.Name, grant.Token); err != nil {
		t.Fatalf("Break(%q): %v", grant.Name, err)
	}
}

// Unlock ends leases.
func Unlock(t testing.TB, leases ...*dlock.Lease) {
	t.Helper()
	for _, lease := range leases {
		if err := lease.Unlock(t.Context()); err != nil {
			t.Errorf("Unlock(%q): %v", lease.Name(), err)
		}
	}
}

// Locked locks in the background.
func Locked(t testing.TB, client *dlock.Client, name string, opts ...dlock.Option) <-chan *dlock.Lease {
	got := make(chan *dlock.Lease, 1)
	go func() {
		lease, err := client.Lock(t.Context(), name, opts...)
		if err != nil {
			t.Errorf("Lock(%q): %v", name, err)
		}
		got <- lease
	}()
	return got
}

// Served returns the lease of a waiter, whose token must be larger than that of the lease before.
func Served(t testing.TB, got <-chan *dlock.Lease, before uint64) *dlock.Lease {
	t.Helper()
	lease := await.Event(t, got, "the waiter's turn")
	if lease == nil {
		t.FailNow()
	}
	Larger(t, lease.Token(), before)
	return lease
}

// Larger checks that a token is larger than that of the grant before.
func Larger(t testing.TB, token, before uint64) {
	t.Helper()
	if token <= before {
		t.Errorf("token %d after %d", token, before)
	}
}

// Crowd lets fair callers of one client wait for a lock.
func Crowd(t testing.TB, client *dlock.Client, name string, callers int) <-chan *dlock.Lease {
	got := make(chan *dlock.Lease, callers)
	for range callers {
		go func() {
			lease, err := client.Lock(t.Context(), name, dlock.WithFair())
			if err != nil {
				t.Errorf("a caller of a crowd: %v", err)
			}
			got <- lease
		}()
	}
	return got
}

// Waiting lets callers of one client wait for a lock that they do not get. leave ends their waits.
func Waiting(t testing.TB, client *dlock.Client, name string, callers int) (leave func()) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, callers)
	for range callers {
		go func() { ended <- Err(client.Lock(ctx, name)) }()
	}
	return func() {
		t.Helper()
		cancel()
		for range callers {
			Error(t, "a cancelled wait", await.Event(t, ended, "the end of a wait"), context.Canceled)
		}
	}
}

// ServedAll unlocks the leases of a crowd, each when its caller has the lock, and checks their order.
func ServedAll(t testing.TB, got <-chan *dlock.Lease, callers int) {
	t.Helper()
	last := uint64(0)
	for range callers {
		lease := Served(t, got, last)
		last = lease.Token()
		Unlock(t, lease)
	}
}

// Unknown checks that a call failed, and that its error does not say what became of the lock.
func Unknown(t testing.TB, what string, err error) {
	t.Helper()
	if err == nil || errors.Is(err, driver.ErrHeld) || errors.Is(err, driver.ErrNotHeld) {
		t.Fatalf("%s: %v; want that the outcome is unknown", what, err)
	}
}

// Later makes a call in the background.
func Later(call func() error) <-chan error {
	done := make(chan error, 1)
	go func() { done <- call() }()
	return done
}

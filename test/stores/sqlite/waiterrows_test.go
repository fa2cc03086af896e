package sqlite

import (
	"errors"
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/sqllock"
	"github.com/dlock-go/dlock/test/harness/await"
)

// waiters is how many wait for "x", which is held.
func waiters(t testing.TB, store *sqllock.Store) int {
	t.Helper()
	for info, err := range store.List(t.Context(), "x") {
		check(t, err)
		return info.Waiters
	}
	t.Fatal("the lock is not listed")
	return 0
}

// TestWaitersAreListed: fair waiters at once, others after a while, and none of
// them when they have left, be it by closing the store.
func TestWaitersAreListed(t *testing.T) {
	t.Parallel()
	path := tempFile(t)
	a, b := openStore(t, path), openStore(t, path)
	mustAcquire(t, a, request("x"))
	came := time.Now()
	_, stop := watch(t, b, request("x"))
	if n := waiters(t, a); n != 0 && time.Since(came) < 200*time.Millisecond {
		t.Errorf("who has just come is seen: %d waiters", n)
	}
	await.Until(t, "one waiter is seen", func() bool { return waiters(t, a) == 1 })

	fair := request("x")
	fair.Fair, fair.Queue = true, true
	if _, err := b.Acquire(t.Context(), fair); err == nil {
		t.Fatal("a held lock was granted")
	}
	if n := waiters(t, a); n != 2 {
		t.Errorf("%d waiters are seen, want 2", n)
	}
	if err := b.Release(t.Context(), driver.Grant{Name: "x", Owner: fair.Owner}); err == nil {
		t.Error("a place in the queue was released as if it were the lock")
	}
	stop()
	await.Until(t, "nobody waits", func() bool { return waiters(t, a) == 0 })

	watch(t, b, request("x"))
	await.Until(t, "one waiter is seen", func() bool { return waiters(t, a) == 1 })
	check(t, b.Close())
	if n := waiters(t, a); n != 0 {
		t.Errorf("a closed store is seen waiting: %d waiters", n)
	}
}

// TestWaiterWithAPlaceIsListedOnce: a waiter that is listed because it has waited for a while, and then
// gets a place because shared holders refuse it, is one waiter.
func TestWaiterWithAPlaceIsListedOnce(t *testing.T) {
	t.Parallel()
	path := tempFile(t)
	a, b := openStore(t, path), openStore(t, path)
	held := mustAcquire(t, a, request("x"))
	req := request("x")
	req.Queue = true
	watch(t, b, req)
	await.Until(t, "one waiter is seen", func() bool { return waiters(t, a) == 1 })
	check(t, a.Downgrade(t.Context(), held))
	if _, err := b.Acquire(t.Context(), req); !errors.Is(err, driver.ErrHeld) {
		t.Fatalf("Acquire of a lock that is shared: %v; want ErrHeld", err)
	}
	seen, start := waiters(t, a), time.Now()
	for ; seen != 1 && time.Since(start) < 20*time.Second; <-time.After(10 * time.Millisecond) { // a row that is left expires after 30 s
		seen = waiters(t, a)
	}
	if seen != 1 {
		t.Errorf("%d waiters are seen, want 1", seen)
	}
}

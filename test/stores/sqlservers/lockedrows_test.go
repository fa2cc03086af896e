package sqlservers

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/sqllock"
	"github.com/dlock-go/dlock/test/harness/await"
	"github.com/dlock-go/dlock/test/harness/proxy"
)

// In these tests an administrator's open transaction keeps rows locked.

// lockFreeLocks makes rows of free locks, and locks them until unlock is called.
func lockFreeLocks(t *testing.T, admin *sql.DB, store driver.Store, names ...string) (unlock func()) {
	t.Helper()
	for _, name := range names {
		release(t, store, acquire(t, store, name)...)
	}
	return lockRows(t, admin, "dlock_locks", names...)
}

// TestPatientWriters: a process whose writes all wait for a locked row waits for them, and
// does not use up a processor. The test runs alone, because it measures the whole process.
func TestPatientWriters(t *testing.T) {
	eachSchemeAlone(t, func(t *testing.T, s target) {
		store := s.open(t)
		defer lockFreeLocks(t, s.admin(t), store, "locked")()
		// The first calls write one at a time, and have given up when the calls that came
		// meanwhile write together.
		const first, writers = 2, 4
		const firstWait, wait = 250 * time.Millisecond, time.Second
		var all sync.WaitGroup
		write := func(timeout time.Duration) {
			ctx, cancel := context.WithTimeout(t.Context(), timeout)
			defer cancel()
			if _, err := store.Acquire(ctx, request("locked")); err == nil {
				t.Error("a row that is locked was written")
			}
		}
		before := processorTime(t)
		for range first {
			all.Go(func() { write(firstWait) })
		}
		<-time.After(wait / 10)
		for range writers {
			all.Go(func() { write(wait) })
		}
		all.Wait()
		if used := processorTime(t) - before; used > wait/4 {
			t.Errorf("%d writers that waited for %v used a processor for %v", writers, wait, used)
		}
	})
}

// processorTime is what this process has used of all processors.
func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var usage syscall.Rusage
	check(t, syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// TestRenewalsComeThrough: a lock can be renewed while everything else that the process
// writes waits for locked rows.
func TestRenewalsComeThrough(t *testing.T) {
	eachScheme(t, func(t *testing.T, s target) {
		var errs []error
		for range 3 { // a busy machine may be too slow once
			if errs = s.renewBesideBlockedWriters(t); errs == nil {
				return
			}
		}
		t.Errorf("Renew of a lock whose row is not locked: %v", errs[0])
	})
}

// renewBesideBlockedWriters renews a lock of a new store whose other writers have just begun to wait.
func (s target) renewBesideBlockedWriters(t *testing.T) []error {
	t.Helper()
	store, admin := s.open(t), s.admin(t)
	kept := acquire(t, store, unique("kept"))
	wanted := []string{unique("x"), unique("y")} // as many as write at once
	unlock := lockFreeLocks(t, admin, store, wanted...)
	var all sync.WaitGroup
	defer all.Wait()
	defer unlock()
	for i, name := range wanted { // one after the other, or they would write together
		all.Go(func() {
			if _, err := store.Acquire(within(t), request(name)); err != nil {
				t.Errorf("Acquire(%q) when its row is free again: %v", name, err)
			}
		})
		s.waitBlocked(t, admin, int64(i+1))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 700*time.Millisecond) // the others wait for a second
	defer cancel()
	return store.Renew(ctx, kept)
}

// TestRenewalsBesideALockedRow: a transaction which keeps the row of one lock locked keeps that
// lock from being renewed, and none of the locks that are renewed with it.
func TestRenewalsBesideALockedRow(t *testing.T) {
	onRow(t, func(t *testing.T, s target) {
		for _, modes := range [][]driver.Mode{{{}}, {shared, two}} {
			s.renewBesideALockedRow(t, modes)
		}
	})
}

func (s target) renewBesideALockedRow(t *testing.T, modes []driver.Mode) {
	t.Helper()
	const locks, blocked, gone = 60, 5, 0 // one transaction renews fifty shares
	store := s.open(t)
	reqs := make([]driver.Request, locks)
	for i := range reqs {
		reqs[i] = requestIn(modes[i%len(modes)], fmt.Sprintf("%v %02d", modes[0], i))
	}
	grants, err := store.AcquireAll(within(t), reqs)
	check(t, err)
	release(t, store, grants[gone])
	mustRenew(t, store, grants[1:]...)
	admin := s.admin(t)
	unlock := lockRows(t, admin, "dlock_locks", grants[blocked].Name)
	defer unlock()
	ctx, cancel := context.WithTimeout(t.Context(), 6*time.Second)
	defer cancel()
	errs := store.Renew(ctx, grants)
	if len(errs) != locks {
		t.Fatalf("Renew: %v; want an error for each", errs)
	}
	for i, err := range errs {
		switch {
		case i == blocked && (err == nil || errors.Is(err, driver.ErrNotHeld)):
			t.Errorf("Renew of a lock whose row is locked: %v; want that the outcome is unknown", err)
		case i == gone && !errors.Is(err, driver.ErrNotHeld):
			t.Errorf("Renew of a lock that was released: %v; want ErrNotHeld", err)
		case i != blocked && i != gone && err != nil:
			t.Errorf("Renew of %q, whose row is not locked: %v", grants[i].Name, err)
		}
	}
	expiry := "SELECT expires FROM dlock_locks WHERE name = '" + grants[blocked].Name + "'"
	before := number(t, admin, expiry)
	time.AfterFunc(time.Second/2, unlock) // while the renewal waits
	mustRenew(t, store, grants[1:]...)
	if after := number(t, admin, expiry); after <= before {
		t.Errorf("a renewal that waited for its row left the expiry at %d, and it was %d", after, before)
	}
}

// lateTTL is what an abandoned statement asks for. It is over when the server carries
// the statement out.
const lateTTL = 200 * time.Millisecond

// abandonment is a store behind a proxy that stops forwarding when the caller leaves, so that the
// server never learns of the cancellation.
type abandonment struct {
	target
	network *proxy.Proxy
	store   *sqllock.Store // behind the network
	direct  *sqllock.Store
	admin   *sql.DB
}

func (s target) abandonment(t *testing.T) *abandonment {
	t.Helper()
	a := &abandonment{target: s, direct: s.open(t), admin: s.admin(t)}
	a.store, a.network = s.behindProxy(t)
	t.Cleanup(func() { // before the store is closed
		a.network.Reset()
		a.network.Deliver()
	})
	return a
}

// renew makes a renewal that waits for a locked row, and gives it up.
func (a *abandonment) renew(t *testing.T, grants []driver.Grant) {
	t.Helper()
	a.leave(t, func(ctx context.Context) error { return errors.Join(a.store.Renew(ctx, grants)...) })
}

// leave makes a call over the network that waits for a locked row, and gives it up: the caller
// leaves, the server goes on. It returns when lateTTL has passed since the statement began.
func (a *abandonment) leave(t *testing.T, call func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- call(ctx) }()
	a.waitBlocked(t, a.admin, 1)
	began := time.Now()
	a.network.Hold() // so that nothing that cancels the statement arrives
	cancel()
	if err := await.Event(t, ended, "the return of a call whose context has ended"); err == nil || errors.Is(err, driver.ErrNotHeld) {
		t.Fatalf("a call that waited for a locked row until its context ended: %v", err)
	}
	<-time.After(time.Until(began.Add(lateTTL)))
}

// TestLateRenewal: a renewal which the server carries out long after the holder has given it
// up does not shorten what the holder has renewed since. A renewal of two locks waits for
// the row of the first, and then writes that of the second.
func TestLateRenewal(t *testing.T) {
	eachScheme(t, func(t *testing.T, s target) {
		a := s.abandonment(t)
		grants := acquire(t, a.direct, "a", "b")
		held := grants[1]
		held.TTL = request("b").TTL
		grants[0].TTL, grants[1].TTL = lateTTL, lateTTL
		unlock := lockRows(t, a.admin, "dlock_locks", "a")
		a.renew(t, grants)
		if errs := a.direct.Renew(within(t), []driver.Grant{held}); errs != nil {
			t.Fatalf("Renew of a lock whose row is not locked: %v", errs[0])
		}
		unlock()
		s.waitBlocked(t, a.admin, 0)
		mustBeHeld(t, a.direct, request("b"))
		for info, err := range a.direct.List(within(t), "b") {
			check(t, err)
			if info.Token != held.Token || info.Remaining < held.TTL/2 {
				t.Errorf("%q is held with token %d for %v more; want token %d and most of %v", info.Name, info.Token, info.Remaining, held.Token, held.TTL)
			}
			return
		}
		t.Error("b is not held any more")
	})
}

// TestAbandonedRenewal: the server ends a renewal whose caller has left, although the row
// stays locked.
func TestAbandonedRenewal(t *testing.T) {
	onRow(t, func(t *testing.T, s target) {
		a := s.abandonment(t)
		grants := acquire(t, a.direct, "a")
		defer lockRows(t, a.admin, "dlock_locks", "a")()
		a.renew(t, grants)
		began := time.Now()
		s.waitBlocked(t, a.admin, 0)
		// The server's own limit is 50 s, or none.
		if took := time.Since(began); took > 20*time.Second {
			t.Errorf("the renewal waited for %v; want about two seconds", took)
		}
	})
}

package sqlsession_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/sqlsession"
	"github.com/dlock-go/dlock/test/harness/await"
	"github.com/dlock-go/dlock/test/harness/proxy"
)

// TestKilledConnection: locks end with their connection, and the store reports the loss soon.
func TestKilledConnection(t *testing.T) {
	each(t, func(t *testing.T, s setup) {
		client := dlock.New(s.store(t, s.open(t)), nil)
		defer client.Close()
		var leases []*dlock.Lease
		for _, name := range []string{"a", "b", "c"} {
			lease, err := client.Lock(t.Context(), name, dlock.WithTTL(10*await.Limit))
			check(t, err)
			leases = append(leases, lease)
		}
		s.killOthers(t, s.open(t))
		for _, lease := range leases {
			await.Event(t, lease.Context().Done(), "the context of a lease whose connection was killed is done")
			if err := lease.Unlock(t.Context()); !errors.Is(err, dlock.ErrNotHeld) {
				t.Errorf("Unlock of %q, whose connection was killed: want ErrNotHeld, got: %v", lease.Name(), err)
			}
			if !errors.Is(context.Cause(lease.Context()), dlock.ErrLost) {
				t.Errorf("the cause is %v, want ErrLost", context.Cause(lease.Context()))
			}
		}
		again, err := client.Lock(t.Context(), "a", dlock.WithWait(await.Limit))
		if err != nil {
			t.Fatalf("Lock on a new connection: %v", err)
		}
		if again.Token() <= leases[0].Token() {
			t.Errorf("token %d was granted after %d", again.Token(), leases[0].Token())
		}
		if err := again.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestReleaseOnKilledConnection: Release returns ErrNotHeld if the connection was killed and
// the store has not noticed it yet.
func TestReleaseOnKilledConnection(t *testing.T) {
	each(t, func(t *testing.T, s setup) {
		store := s.store(t, s.open(t))
		admin := s.open(t)
		check(t, admin.Ping())
		var lost atomic.Int32
		req := request("x")
		req.Lost = func() { lost.Add(1) }
		grant := mustAcquire(t, store, req)
		s.killOthers(t, admin)
		if err := store.Release(t.Context(), grant); !errors.Is(err, driver.ErrNotHeld) {
			t.Errorf("Release on a killed connection: want ErrNotHeld, got: %v", err)
		}
		if n := lost.Load(); n > 1 {
			t.Errorf("Lost was called %d times", n)
		}
		await.Until(t, "the lock can be acquired again", func() bool {
			_, err := store.Acquire(t.Context(), req)
			return err == nil
		})
	})
}

// TestSilentAttempt: an attempt that is never answered ends with its connection, and does
// not block the name for other callers of the process.
func TestSilentAttempt(t *testing.T) {
	eachOn(t, sqlsession.Session, func(t *testing.T, s setup) {
		p := proxy.Run(t, s.server.Addr())
		store, err := s.openAt(t.Context(), p.Addr())
		check(t, err)
		defer store.Close()
		silent := make(chan struct{})
		defer close(silent)
		cut, cancel := context.WithCancel(t.Context())
		p.OnRequest(s.attempts, func(*proxy.Conn) {
			cancel()
			<-silent
		})
		first := request("x")
		if _, err := store.Acquire(cut, first); !errors.Is(err, context.Canceled) {
			t.Fatalf("Acquire over a silent connection: %v", err)
		}
		acquired := func(name string) func() bool {
			return func() bool {
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				_, err := store.Acquire(ctx, request(name))
				return err == nil
			}
		}
		await.Until(t, "another name can be acquired over a new connection", acquired("y"))
		limited, done := context.WithTimeout(t.Context(), await.Limit)
		defer done()
		if err := store.Release(limited, driver.Grant{Name: "x", Owner: first.Owner}); !errors.Is(err, driver.ErrNotHeld) {
			t.Errorf("Release of what was never acquired: want ErrNotHeld, got: %v", err)
		}
		await.Until(t, "another owner can acquire the name", acquired("x"))
	})
}

// TestCancelledAttemptsKeepOtherLocks: attempts whose context ends before the answer cost no
// other owner its lock, and leave none behind.
func TestCancelledAttemptsKeepOtherLocks(t *testing.T) {
	each(t, func(t *testing.T, s setup) {
		store, elsewhere := s.store(t, s.open(t)), s.store(t, s.open(t))
		var lost atomic.Int32
		req := request("kept")
		req.Lost = func() { lost.Add(1) }
		kept := mustAcquire(t, store, req)
		for i := range 200 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*5*time.Microsecond)
			req := request("cancelled")
			_, err := store.Acquire(ctx, req)
			cancel()
			if err == nil || !errors.Is(err, driver.ErrHeld) {
				err = store.Release(t.Context(), driver.Grant{Name: req.Name, Owner: req.Owner})
			}
			if err != nil && !errors.Is(err, driver.ErrNotHeld) && !errors.Is(err, driver.ErrHeld) {
				t.Fatal(err)
			}
		}
		mayGet(t, elsewhere, request("cancelled"), "the name of the cancelled attempts is free")
		if errs := store.Renew(t.Context(), []driver.Grant{kept}); errs != nil || lost.Load() > 0 {
			t.Errorf("the lock of another owner was lost: %v, reported %d times", errs, lost.Load())
		}
		mustRelease(t, store, kept)
	})
}

// TestIdleTimeouts: a server that closes idle connections closes none with locks.
func TestIdleTimeouts(t *testing.T) {
	eachWith(t, func(d database) []string { return d.short }, func(t *testing.T, s setup) {
		store := s.store(t, s.open(t))
		var lost atomic.Int32
		req := request("x")
		req.Lost = func() { lost.Add(1) }
		grant := mustAcquire(t, store, req)
		<-time.After(4 * time.Second)
		if errs := store.Renew(t.Context(), []driver.Grant{grant}); errs != nil || lost.Load() > 0 {
			t.Errorf("an idle lock was lost: %v, reported %d times", errs, lost.Load())
		}
		mustRelease(t, store, grant)
	})
}

// TestRestartWhileIdle: a store that holds no lock works on after a restart of the server.
func TestRestartWhileIdle(t *testing.T) {
	eachAlone(t, func(t *testing.T, s setup) {
		store := s.store(t, s.open(t))
		mustRelease(t, store, mustAcquire(t, store, request("x")))
		s.crash(t)
		mustRelease(t, store, mustAcquire(t, store, request("x")))
	})
}

// TestCloseOverASilentConnection: a connection that died without a sign does not keep Close from returning,
// nor its locks from being released, also if the store has reported their loss just before.
func TestCloseOverASilentConnection(t *testing.T) {
	each(t, func(t *testing.T, s setup) {
		for _, noticed := range []bool{false, true} {
			p := proxy.Run(t, s.server.Addr())
			store, err := s.openAt(t.Context(), p.Addr())
			check(t, err)
			elsewhere := s.store(t, s.open(t))
			req, lost := losable("x")
			mustAcquire(t, store, req)
			p.Blackhole()
			if noticed {
				await.Event(t, lost, "the loss is reported")
			}
			closed := make(chan struct{})
			go func() {
				defer close(closed)
				_ = store.Close() // its pool has connections that do not answer
			}()
			await.Event(t, closed, "Close returns")
			mayGet(t, elsewhere, request("x"), "the lock is free")
		}
	})
}

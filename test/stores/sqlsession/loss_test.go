package sqlsession_test

import (
	"context"
	"errors"
	"fmt"
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
			if err != nil {
				t.Fatal(err)
			}
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
		if err := admin.Ping(); err != nil {
			t.Fatal(err)
		}
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

// TestSilentServer: if the server does not answer, calls return when their context ends, and
// its locks count as lost after some seconds.
func TestSilentServer(t *testing.T) {
	eachAlone(t, func(t *testing.T, s setup) {
		store := s.store(t, s.open(t))
		lost := make(chan struct{})
		req := request("x")
		req.Lost = func() { close(lost) }
		grant := mustAcquire(t, store, req)
		if err := s.server.Pause(); err != nil {
			t.Fatal(err)
		}
		resume := func() {
			if err := s.server.Resume(); err != nil {
				t.Error(err)
			}
		}
		// The threads of a server do not stop all at once.
		tries := 0
		await.Until(t, "the server is silent", func() bool {
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			tries++
			_, err := store.Acquire(ctx, request(fmt.Sprintf("y%d", tries)))
			if errors.Is(err, driver.ErrHeld) {
				t.Errorf("Acquire from a server that does not answer: %v", err)
			}
			return err != nil
		})
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		start := time.Now()
		if _, err := store.Acquire(ctx, request("z")); err == nil || errors.Is(err, driver.ErrHeld) {
			t.Errorf("Acquire from a server that does not answer: %v", err)
		}
		if err := store.Renew(ctx, []driver.Grant{grant}); err == nil || errors.Is(err[0], driver.ErrNotHeld) {
			t.Errorf("Renew on a server that does not answer: %v", err)
		}
		if took := time.Since(start); took > 4*time.Second { // less than what the connection has
			t.Errorf("calls with 200ms to go took %v", took)
		}
		await.Event(t, lost, "the loss of a lock on a server that does not answer is reported")
		resume()
		await.Until(t, "the lock can be acquired again", func() bool {
			_, err := store.Acquire(t.Context(), request("x"))
			return err == nil
		})
	})
}

// TestSilentAttempt: an attempt that is never answered ends with its connection, and does
// not block the name for other callers of the process.
func TestSilentAttempt(t *testing.T) {
	t.Parallel()
	for _, d := range databases {
		t.Run(d.kind.Name, func(t *testing.T) {
			t.Parallel()
			s := d.among(t, sqlsession.Session)
			p := proxy.Run(t, s.server.Addr())
			store, err := s.openAt(t.Context(), p.Addr())
			if err != nil {
				t.Fatal(err)
			}
			defer store.Close()
			silent := make(chan struct{})
			defer close(silent)
			cut, cancel := context.WithCancel(t.Context())
			p.OnRequest(d.attempts, func(*proxy.Conn) {
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
		await.Until(t, "the name of the cancelled attempts is free", func() bool {
			grant, err := elsewhere.Acquire(t.Context(), request("cancelled"))
			return err == nil && elsewhere.Release(t.Context(), grant) == nil
		})
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
		if err := s.server.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := s.server.Restart(); err != nil {
			t.Fatal(err)
		}
		mustRelease(t, store, mustAcquire(t, store, request("x")))
	})
}

// TestCloseAfterALoss: a store that is closed as soon as it has reported a loss ends that session, too.
func TestCloseAfterALoss(t *testing.T) {
	each(t, func(t *testing.T, s setup) {
		p := proxy.Run(t, s.server.Addr())
		store, err := s.openAt(t.Context(), p.Addr())
		if err != nil {
			t.Fatal(err)
		}
		elsewhere := s.store(t, s.open(t))
		lost := make(chan struct{})
		req := request("x")
		req.Lost = func() { close(lost) }
		mustAcquire(t, store, req)
		p.Blackhole()
		await.Event(t, lost, "the loss is reported")
		_ = store.Close() // its pool has connections that do not answer
		await.Until(t, "the lock is free", func() bool {
			grant, err := elsewhere.Acquire(t.Context(), request("x"))
			return err == nil && elsewhere.Release(t.Context(), grant) == nil
		})
	})
}

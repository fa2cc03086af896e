package interop

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/redislock"
	"github.com/dlock-go/dlock/test/harness/servers"
)

const (
	// longTTL is much longer than a test: a waiter that gets the lock was
	// notified or has polled, and did not wait for an expiry.
	longTTL = time.Minute

	// wakeLimit bounds a hand-over on a busy machine.
	wakeLimit = 2 * time.Second
)

// connect returns a client of Redis for the duration of the test.
func connect(t testing.TB, server *servers.Server) *redis.Client {
	t.Helper()
	client := redis.NewClient(&redis.Options{
		Addr:          server.Addr(),
		DialerRetries: 1, // a server that was killed does not come back
	})
	t.Cleanup(func() { client.Close() })
	return client
}

// newStore returns a store for the duration of the test.
func newStore(t testing.TB, client redis.UniversalClient, protocol redislock.Protocol) *redislock.Store {
	t.Helper()
	store, err := redislock.New(client, &redislock.Options{Protocol: protocol})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Errorf("close the store: %v", err)
		}
	})
	return store
}

// newClient returns a client of dlock for the duration of the test.
func newClient(t testing.TB, store driver.Store) *dlock.Client {
	t.Helper()
	c := dlock.New(store, &dlock.Options{TTL: longTTL})
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("close the client: %v", err)
		}
	})
	return c
}

// try calls TryLock until the store answers: on a busy machine too many members of a
// quorum may be late.
func try(t testing.TB, c *dlock.Client, name string, opts ...dlock.Option) (*dlock.Lease, error) {
	t.Helper()
	for tries := 1; ; tries++ {
		lease, err := c.TryLock(t.Context(), name, opts...)
		if tries == 5 || !errors.Is(err, dlock.ErrUnreachable) {
			return lease, err
		}
	}
}

// tryLock acquires a lock that has to be free.
func tryLock(t testing.TB, c *dlock.Client, name string, opts ...dlock.Option) *dlock.Lease {
	t.Helper()
	lease, err := try(t, c, name, opts...)
	if err != nil {
		t.Fatalf("TryLock(%q) of a free lock: %v", name, err)
	}
	return lease
}

// mustRefuse checks that dlock does not get a lock that another program holds.
func mustRefuse(t testing.TB, c *dlock.Client, name string, opts ...dlock.Option) {
	t.Helper()
	lease, err := try(t, c, name, opts...)
	if err == nil {
		unlock(t, lease)
		t.Fatalf("dlock got %q, which another program has", name)
	}
	if _, ok := errors.AsType[*dlock.HeldError](err); !ok || !errors.Is(err, dlock.ErrHeld) {
		t.Fatalf("TryLock(%q) of a lock that another program has: %v; want a HeldError", name, err)
	}
}

func unlock(t testing.TB, lease *dlock.Lease) {
	t.Helper()
	if err := lease.Unlock(context.Background()); err != nil {
		t.Errorf("Unlock(%q): %v", lease.Name(), err)
	}
}

// wait is the outcome of a Lock in the background.
type wait struct {
	lease *dlock.Lease
	err   error
	at    time.Time
}

// lockLater starts a Lock in the background, and sends its outcome.
func lockLater(t testing.TB, c *dlock.Client, name string, opts ...dlock.Option) <-chan wait {
	done := make(chan wait, 1)
	go func() {
		lease, err := c.Lock(t.Context(), name, opts...)
		done <- wait{lease, err, time.Now()}
	}()
	return done
}

// granted waits until a Lock in the background has acquired its lock.
func granted(t testing.TB, later <-chan wait, limit time.Duration) wait {
	t.Helper()
	select {
	case w := <-later:
		if w.err != nil {
			t.Fatalf("Lock: %v", w.err)
		}
		return w
	case <-time.After(limit):
		t.Fatalf("dlock did not get the lock within %v", limit)
		return wait{}
	}
}

// eventually polls a server until a condition holds.
func eventually(t testing.TB, what string, holds func() (bool, error)) {
	t.Helper()
	const limit = 20 * time.Second
	deadline := time.After(limit)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		ok, err := holds()
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if ok {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("not within %v: %s", limit, what)
		}
	}
}

// report logs the durations of hand-overs, and fails if the longest exceeds the
// limit.
func report(t testing.TB, what string, took []time.Duration, limit time.Duration) {
	t.Helper()
	slices.Sort(took)
	median, last := took[len(took)/2].Round(10*time.Microsecond), took[len(took)-1].Round(10*time.Microsecond)
	if len(took) == 1 {
		t.Logf("%s: %s: %v", t.Name(), what, last)
	} else {
		t.Logf("%s: %s: median of %d %v, longest %v", t.Name(), what, len(took), median, last)
	}
	if last > limit {
		t.Errorf("%s: %v, want at most %v", what, last, limit)
	}
	if took[0] <= 0 {
		t.Errorf("%s: %v: the lock was acquired before it was released", what, took[0])
	}
}

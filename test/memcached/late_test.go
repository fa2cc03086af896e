package memcached

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/memcachelock"
	"github.com/dlock-go/dlock/test/proxy"
	"github.com/dlock-go/dlock/test/servers"
)

// limit is for what must happen, however busy the machine is.
const limit = 30 * time.Second

// heldBack keeps back the next request that contains text, on its connection alone, until
// deliver is called. The channel is closed when the request has come by.
func heldBack(t *testing.T, p *proxy.Proxy, text string) (came <-chan struct{}, deliver func()) {
	t.Helper()
	arrived, let := make(chan struct{}), make(chan struct{})
	passed := p.OnRequest(
		func(request []byte) bool { return bytes.Contains(request, []byte(text)) },
		func(*proxy.Conn) {
			close(arrived)
			select {
			case <-let:
			case <-t.Context().Done(): // the test has failed
			}
		})
	return arrived, func() {
		t.Helper()
		close(let)
		happens(t, passed, "the delivery")
		if !p.Settle(limit) {
			t.Fatal("what was delivered is not answered")
		}
	}
}

func happens[T any](t *testing.T, event <-chan T, what string) (e T) {
	t.Helper()
	select {
	case e = <-event:
	case <-time.After(limit):
		t.Fatalf("%s: not within %v", what, limit)
	}
	return e
}

// proxied returns a store that reaches the server through a proxy and has a connection,
// and one that reaches it directly.
func proxied(t *testing.T, server string, timeout time.Duration) (p *proxy.Proxy, through, direct driver.Store) {
	t.Helper()
	p = proxy.Run(t, server)
	through, err := memcachelock.New(p.Addr(), &memcachelock.Options{RestartDelay: -1, Timeout: timeout})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = through.Close() })
	if err := through.Release(t.Context(), take(t, through, "warm-up")); err != nil {
		t.Fatal(err)
	}
	return p, through, openNow(t, server)
}

// getsFree waits until nobody has the lock: soon, and not because its TTL is over.
func getsFree(t *testing.T, store driver.Store, name string) {
	t.Helper()
	eventually(t, name+" is free", func() bool {
		_, held, err := store.(driver.Looker).Look(t.Context(), name)
		return err == nil && !held
	})
}

// late asks for name with a note, by which its request is found, and a TTL that outlasts
// the test.
func late(name string) driver.Request {
	return driver.Request{Name: name, Owner: driver.NewOwner(), TTL: time.Hour, Holder: driver.Holder{Note: "late-" + name}}
}

// abandon makes an attempt whose request is kept back, and whose caller does not wait for it.
func abandon(t *testing.T, p *proxy.Proxy, store driver.Store, req driver.Request) (deliver func()) {
	t.Helper()
	came, deliver := heldBack(t, p, req.Holder.Note)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	failed := make(chan error, 1)
	go func() {
		_, err := store.Acquire(ctx, req)
		failed <- err
	}()
	happens(t, came, "the request")
	cancel()
	if err := happens(t, failed, "the end of the attempt"); !errors.Is(err, context.Canceled) {
		t.Fatalf("an attempt that was cancelled: %v", err)
	}
	return deliver
}

// TestLateAttempt: an attempt whose caller left before its request was delivered leaves no
// lock behind, although its Release was sent first.
func TestLateAttempt(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.Memcached).Addr()
	release := func(ctx context.Context, store driver.Store, req *driver.Request) <-chan error {
		done := make(chan error, 1)
		go func() { done <- store.Release(ctx, driver.Grant{Name: req.Name, Owner: req.Owner}) }()
		return done
	}
	t.Run("delivered while Release waits", func(t *testing.T) {
		t.Parallel()
		p, through, direct := proxied(t, server, 0)
		req := late("waiting")
		deliver := abandon(t, p, through, req)
		released := release(t.Context(), through, &req)
		select {
		case err := <-released:
			t.Errorf("Release returned %v before the attempt had ended", err)
			released = release(t.Context(), through, &req)
		case <-time.After(100 * time.Millisecond):
		}
		deliver()
		if err := happens(t, released, "the Release"); err != nil && !errors.Is(err, driver.ErrNotHeld) {
			t.Errorf("Release: %v", err)
		}
		if _, held, err := direct.(driver.Looker).Look(t.Context(), req.Name); held || err != nil {
			t.Errorf("after Release: held %v, %v", held, err)
		}
	})
	t.Run("delivered after Release gave up", func(t *testing.T) {
		t.Parallel()
		p, through, direct := proxied(t, server, 0)
		req := late("too-late")
		deliver := abandon(t, p, through, req)
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		if err := happens(t, release(ctx, through, &req), "the Release"); !errors.Is(err, driver.ErrUnreachable) {
			t.Errorf("Release while the attempt is under way: %v; want ErrUnreachable", err)
		}
		deliver()
		getsFree(t, direct, req.Name)
	})
	t.Run("delivered after Release returned", func(t *testing.T) {
		t.Parallel()
		p, through, direct := proxied(t, server, time.Second)
		req := late("forgotten")
		deliver := abandon(t, p, through, req)
		if err := happens(t, release(t.Context(), through, &req), "the Release"); err != nil && !errors.Is(err, driver.ErrNotHeld) {
			t.Errorf("Release: %v", err)
		}
		deliver()
		getsFree(t, direct, req.Name)
	})
	t.Run("a client", func(t *testing.T) {
		t.Parallel()
		p, through, direct := proxied(t, server, 0)
		client := dlock.New(through, nil)
		came, deliver := heldBack(t, p, "late-client")
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
		defer cancel()
		if _, err := client.TryLock(ctx, "client", dlock.WithTTL(time.Hour), dlock.WithNote("late-client")); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("TryLock: %v; want that its time is up", err)
		}
		happens(t, came, "the request")
		closed := make(chan error, 1)
		go func() { closed <- client.Close() }()
		select { // without waiting for the attempt, or after it
		case err := <-closed:
			closed <- err
		case <-time.After(80 * time.Millisecond):
		}
		deliver()
		if err := happens(t, closed, "the end of Close"); err != nil {
			t.Error(err)
		}
		getsFree(t, direct, "client")
	})
}

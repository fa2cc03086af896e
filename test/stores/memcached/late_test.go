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
	"github.com/dlock-go/dlock/test/harness/proxy"
	"github.com/dlock-go/dlock/test/harness/servers"
)

// limit bounds what must happen, on a machine that is busy.
const limit = 30 * time.Second

// bounded returns a context that ends after limit.
func bounded(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	return ctx
}

// heldBack holds the next request that contains text back, on its connection alone, until deliver is
// called. The channel is closed when the request has arrived at the proxy.
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
			t.Fatal("the delivered request is not answered")
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

// proxied returns a store with a connection through a proxy, and one that reaches the server directly.
func proxied(t *testing.T, server string, timeout time.Duration) (p *proxy.Proxy, through, direct driver.Store) {
	t.Helper()
	p = proxy.Run(t, server)
	through, err := memcachelock.New(p.Addr(), &memcachelock.Options{RestartDelay: -1, Timeout: timeout})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = through.Close() })
	if err := through.Release(t.Context(), take(t, through, "warm-up of "+t.Name())); err != nil {
		t.Fatal(err)
	}
	return p, through, openNow(t, server)
}

// getsFree waits until the lock is free: soon, and not because its TTL has ended.
func getsFree(t *testing.T, store driver.Store, name string) {
	t.Helper()
	eventually(t, name+" is free", func() bool {
		_, held, err := store.(driver.Finder).Find(t.Context(), name)
		return err == nil && !held
	})
}

// late returns a request with a note, by which the proxy finds it, and a TTL longer than the test.
func late(name string) driver.Request {
	return driver.Request{Name: name, Owner: driver.NewOwner(), TTL: time.Hour, Holder: driver.Holder{Note: "late-" + name}}
}

// abandon makes an attempt whose request is held back, and whose caller does not wait for it.
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
		t.Fatalf("a cancelled attempt: %v", err)
	}
	return deliver
}

// TestLateAttemptIsUndone: an attempt whose caller left before its request was delivered leaves
// no lock behind, although its Release was sent first.
func TestLateAttemptIsUndone(t *testing.T) {
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
		if _, held, err := direct.(driver.Finder).Find(t.Context(), req.Name); held || err != nil {
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
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		if _, err := client.TryLock(ctx, "client", dlock.WithTTL(time.Hour), dlock.WithNote("late-client")); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("TryLock: %v; want context.DeadlineExceeded", err)
		}
		happens(t, came, "the request")
		closed := make(chan error, 1)
		go func() { closed <- client.Close() }()
		select { // whether Close waits for the attempt or not
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

// TestLateCallsChangeNothing: a call that is delivered late, when the lock is free or has another
// owner, changes nothing.
func TestLateCallsChangeNothing(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.Memcached).Addr()
	for name, c := range map[string]struct {
		renewed bool   // before the call, so that the number of the item is unknown
		request string // the beginning of the late request
		call    func(ctx context.Context, store driver.Store, grant driver.Grant) error
	}{
		"Release by number":         {false, "md dlock:", release},
		"Release by owner":          {true, "mg dlock:", release},
		"Release of what was found": {true, "md dlock:", release},
		"Renew":                     {false, "mg dlock:", renew},
		"Renew of what was found":   {false, "cas dlock:", renew},
		"Renew for the second time": {true, "cas dlock:", renew},
	} {
		for regranted, state := range map[bool]string{true: "another owner", false: "a free lock"} {
			t.Run(name+" for "+state, func(t *testing.T) {
				t.Parallel()
				p, through, direct := proxied(t, server, 0)
				lock := t.Name()
				grant := take(t, through, lock)
				if c.renewed {
					if err := renew(t.Context(), through, grant); err != nil {
						t.Fatal(err)
					}
				}
				came, deliver := heldBack(t, p, c.request)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				done := make(chan error, 1)
				go func() { done <- c.call(ctx, through, grant) }()
				happens(t, came, "the call")
				cancel()
				if err := happens(t, done, "the end of the call"); !errors.Is(err, context.Canceled) {
					t.Fatalf("a cancelled call: %v", err)
				}
				if err := direct.(driver.Breaker).Break(t.Context(), lock, grant.Token); err != nil {
					t.Fatal(err)
				}
				var next driver.Grant
				if regranted {
					next = take(t, direct, lock)
				}
				deliver()
				info, held, err := direct.(driver.Finder).Find(t.Context(), lock)
				if err != nil || held != regranted || info.Token != next.Token {
					t.Errorf("afterwards: held %v with token %d, %v; want %v, %d", held, info.Token, err, regranted, next.Token)
				}
				// The same call again, without a delay.
				if err := c.call(t.Context(), through, grant); !errors.Is(err, driver.ErrNotHeld) {
					t.Errorf("the call of an owner that lost its lock: %v; want ErrNotHeld", err)
				}
				if regranted {
					if err := release(t.Context(), direct, next); err != nil {
						t.Errorf("Release of the lock that is held: %v", err)
					}
				}
			})
		}
	}
}

func release(ctx context.Context, store driver.Store, grant driver.Grant) error {
	return store.Release(ctx, grant)
}

func renew(ctx context.Context, store driver.Store, grant driver.Grant) error {
	return errors.Join(store.Renew(ctx, []driver.Grant{grant})...)
}

// TestRepeatedCallsAreIdempotent: an owner that asks twice, over two connections at once, has one
// lock with one token, and a repeated Release does not take it from the next owner.
func TestRepeatedCallsAreIdempotent(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.Memcached).Addr()
	p, through, direct := proxied(t, server, 0)
	req := late("twice")
	came, deliver := heldBack(t, p, req.Holder.Note)
	first := make(chan driver.Grant, 1)
	go func() {
		grant, err := through.Acquire(t.Context(), req)
		if err != nil {
			t.Error(err)
		}
		first <- grant
	}()
	happens(t, came, "the first request")
	second, err := through.Acquire(t.Context(), req) // overtakes the first
	if err != nil {
		t.Fatal(err)
	}
	deliver()
	if grant := happens(t, first, "the first grant"); grant.Token != second.Token {
		t.Errorf("one owner has the tokens %d and %d", grant.Token, second.Token)
	}
	for i, want := range []error{nil, driver.ErrNotHeld} {
		if err := through.Release(t.Context(), second); !errors.Is(err, want) {
			t.Errorf("Release %d: %v; want %v", i+1, err, want)
		}
	}
	next := take(t, direct, "twice")
	if err := through.Release(t.Context(), second); !errors.Is(err, driver.ErrNotHeld) {
		t.Errorf("Release for the third time: %v; want ErrNotHeld", err)
	}
	if err := direct.Release(t.Context(), next); err != nil {
		t.Errorf("Release of the lock that is held: %v", err)
	}
}

// TestLateReleaseAfterARestartChangesNothing: after a restart the numbers of items begin again. A
// release that was under way does not delete the lock that got the same number.
func TestLateReleaseAfterARestartChangesNothing(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.Memcached)
	p := proxy.Run(t, server.Addr())
	through, direct := openNow(t, p.Addr()), openNow(t, server.Addr())
	before := take(t, through, "a") // the first number
	came, deliver := heldBack(t, p, "md dlock:")
	done := make(chan error, 1)
	go func() { done <- release(t.Context(), through, before) }()
	happens(t, came, "the release")
	if err := errors.Join(server.Kill(), server.Restart()); err != nil {
		t.Fatal(err)
	}
	after := take(t, direct, "a")
	deliver()
	if err := happens(t, done, "the end of the release"); err == nil {
		t.Error("a release that did not reach its server has succeeded")
	}
	if err := release(t.Context(), direct, after); err != nil {
		t.Errorf("Release of the lock that is held: %v", err)
	}
}

// TestLateRenewalDoesNotShorten: a renewal over a slow connection that is carried out after a later
// renewal does not shorten the lock.
func TestLateRenewalDoesNotShorten(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.Memcached).Addr()
	direct := openNow(t, server)
	grant := take(t, direct, "a")
	remaining := func() time.Duration {
		t.Helper()
		info, held, err := direct.(driver.Finder).Find(t.Context(), "a")
		if err != nil || !held {
			t.Fatalf("Find: held %v, %v", held, err)
		}
		return info.Remaining
	}
	p := proxy.Run(t, server)
	slow := openNow(t, p.Addr())
	came, deliver := heldBack(t, p, "mg dlock:")
	done := make(chan error, 1)
	go func() { done <- renew(t.Context(), slow, grant) }()
	happens(t, came, "the slow renewal")
	<-time.After(3 * time.Second) // less than the limit of a call
	if err := renew(t.Context(), direct, grant); err != nil {
		t.Fatal(err)
	}
	before := remaining()
	deliver()
	if err := happens(t, done, "the end of the slow renewal"); err != nil {
		t.Fatal(err)
	}
	if after := remaining(); after < before-time.Second {
		t.Errorf("the lock lasts for %v, and lasted for %v before a late renewal", after, before)
	}

	longer := grant
	longer.TTL *= 2
	if err := renew(t.Context(), direct, longer); err != nil {
		t.Fatal(err)
	}
	before = remaining()
	if err := renew(t.Context(), direct, grant); err != nil {
		t.Fatal(err)
	}
	if after := remaining(); after < before-4*time.Second { // the precision of serverClock
		t.Errorf("the lock lasts for %v, and lasted for %v before a renewal with a shorter TTL", after, before)
	}
}

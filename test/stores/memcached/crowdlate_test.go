package memcached

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/test/harness/proxy"
	"github.com/dlock-go/dlock/test/harness/servers"
)

// TestLateAttemptInACrowdIsUndone: an attempt that shares a round trip, and whose caller left before it was
// delivered, leaves no lock behind. Other calls go on.
func TestLateAttemptInACrowdIsUndone(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.Memcached).Addr()
	for name, early := range map[string]bool{"delivered while Release waits": true, "delivered after Release returned": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, through, direct := inACrowd(t, server)
			req := late(fmt.Sprint("early-", early))
			deliver := abandon(t, p, through, req)
			other := make(chan error, 1)
			go func() { other <- through.Release(t.Context(), take(t, through, "beside "+req.Name)) }()
			released := make(chan error, 1)
			go func() { released <- through.Release(t.Context(), driver.Grant{Name: req.Name, Owner: req.Owner}) }()
			select {
			case err := <-released:
				t.Errorf("Release returned %v before the attempt had ended", err)
				released <- nil
			case <-time.After(100 * time.Millisecond):
			}
			if early {
				deliver()
			}
			// Otherwise the connection counts as dead after a second, but its request is still on the way.
			if err := happens(t, released, "the Release"); err != nil && !errors.Is(err, driver.ErrNotHeld) {
				t.Errorf("Release: %v", err)
			}
			if !early {
				deliver()
			}
			getsFree(t, direct, req.Name)
			if err := happens(t, other, "the other call"); err != nil {
				t.Errorf("a call beside the late attempt: %v", err)
			}
		})
	}
}

// TestRepeatedAttemptInACrowdIsUndone: an attempt over a connection that is silent is made again over
// another one. When the first is carried out after the release, it leaves no lock behind.
func TestRepeatedAttemptInACrowdIsUndone(t *testing.T) {
	t.Parallel()
	p, through, direct := inACrowd(t, servers.Run(t, servers.Memcached).Addr())
	req := late("repeated")
	came, deliver := heldBack(t, p, req.Holder.Note)
	grant, err := through.Acquire(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	happens(t, came, "the first request")
	if err := through.Release(t.Context(), grant); err != nil {
		t.Error(err)
	}
	deliver()
	getsFree(t, direct, req.Name)
}

// TestHeldAfterALostTryIsNoProof: an attempt over a silent connection is made again, and finds that another
// owner has the lock. The first try may still be carried out, so the outcome is unknown, and Release undoes it.
func TestHeldAfterALostTryIsNoProof(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.Memcached).Addr()
	for name, open := range map[string]func(*testing.T) (*proxy.Proxy, driver.Store, driver.Store){
		"alone":      func(t *testing.T) (*proxy.Proxy, driver.Store, driver.Store) { return proxied(t, server, 0) },
		"in a crowd": func(t *testing.T) (*proxy.Proxy, driver.Store, driver.Store) { return inACrowd(t, server) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, through, direct := open(t)
			req := late(name[:2])
			came, deliver := heldBack(t, p, req.Holder.Note)
			failed := make(chan error, 1)
			go func() {
				_, err := through.Acquire(t.Context(), req)
				failed <- err
			}()
			happens(t, came, "the first request")
			other := take(t, direct, req.Name)
			if err := happens(t, failed, "the end of the attempt"); !errors.Is(err, driver.ErrUnreachable) || errors.Is(err, driver.ErrHeld) {
				t.Errorf("an attempt that may still be carried out: %v; want ErrUnreachable", err)
			}
			if err := direct.Release(t.Context(), other); err != nil {
				t.Error(err)
			}
			deliver()
			if err := through.Release(t.Context(), driver.Grant{Name: req.Name, Owner: req.Owner}); err != nil && !errors.Is(err, driver.ErrNotHeld) {
				t.Error(err)
			}
			getsFree(t, direct, req.Name)
		})
	}
}

// TestCallerThatLeftIsNotSent: what was not written when its caller left is never written.
func TestCallerThatLeftIsNotSent(t *testing.T) {
	t.Parallel()
	p := proxy.Run(t, servers.Run(t, servers.Memcached).Addr())
	through, err := openCrowded(p)
	if err != nil {
		t.Fatal(err)
	}
	defer through.Close()
	req := late("left")
	written := p.OnRequest(func(request []byte) bool { return bytes.Contains(request, []byte(req.Holder.Note)) }, nil)
	came, deliver := heldBack(t, p, "stats") // of the connection that the attempt needs
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error, 1)
	go func() {
		_, err := through.Acquire(ctx, req)
		failed <- err
	}()
	happens(t, came, "the new connection")
	cancel()
	if err := happens(t, failed, "the end of the attempt"); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled attempt: %v", err)
	}
	deliver()
	if err := through.Release(t.Context(), take(t, through, "next")); err != nil { // after the attempt, over the same connection
		t.Error(err)
	}
	select {
	case <-written:
		t.Error("the attempt was sent after its caller had left")
	default:
	}
}

// TestLateReleaseInACrowdChangesNothing: a release that shares a round trip and is delivered when another
// owner has the lock changes nothing.
func TestLateReleaseInACrowdChangesNothing(t *testing.T) {
	t.Parallel()
	p, through, direct := inACrowd(t, servers.Run(t, servers.Memcached).Addr())
	grant := take(t, through, "a")
	came, deliver := heldBack(t, p, "md dlock:a ")
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- through.Release(ctx, grant) }()
	happens(t, came, "the release")
	cancel()
	if err := happens(t, done, "the end of the release"); !errors.Is(err, context.Canceled) || !errors.Is(err, driver.ErrUnreachable) {
		t.Errorf("a cancelled release: %v; want ErrUnreachable and context.Canceled", err)
	}
	if err := direct.(driver.Breaker).Break(t.Context(), "a", grant.Token); err != nil {
		t.Fatal(err)
	}
	next := take(t, direct, "a")
	deliver()
	if err := through.Release(t.Context(), grant); !errors.Is(err, driver.ErrNotHeld) {
		t.Errorf("the second Release of a broken lock: %v; want ErrNotHeld", err)
	}
	if err := direct.Release(t.Context(), next); err != nil {
		t.Errorf("Release of the lock that is held: %v", err)
	}
}

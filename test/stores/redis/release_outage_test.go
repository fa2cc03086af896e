package redis

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/test/harness/command"
	"github.com/dlock-go/dlock/test/harness/proxy"
	"github.com/dlock-go/dlock/test/harness/servers"
)

const (
	shortOutage = 1500 * time.Millisecond
	longTTL     = 2 * time.Minute // later than any test waits
)

// down makes a proxy refuse its clients until the function is called that it returns.
func down(p *proxy.Proxy, server *servers.Server) (up func()) {
	p.Redirect("127.0.0.1:1") // no server listens there
	p.Reset()
	return func() { p.Redirect(server.Addr()) }
}

// TestReleaseAfterShortOutage: Unlock, and the end of a wait in a fair queue, meet a server that refuses
// connections, and it comes back soon. The other callers need not wait until something expires.
func TestReleaseAfterShortOutage(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.Redis, inMemory...)
	p := proxy.Run(t, server.Addr())
	_, client := openURL(t, "redis://"+p.Addr())
	_, other := openURL(t, server.URL())
	lease := mustLock(t, client, "unlocked", dlock.WithTTL(longTTL))
	holder := mustLock(t, other, "fair", dlock.WithFair(), dlock.WithTTL(longTTL))
	ctx, cancel := context.WithCancel(t.Context())
	cancelled := waitFor(ctx, client, "fair", dlock.WithFair(), dlock.WithTTL(longTTL))
	eventually(t, "the waiter has a place", func() bool {
		info, held, err := other.Find(t.Context(), "fair")
		return err == nil && held && info.Waiters == 1
	})
	up := down(p, server)
	cancel()
	<-cancelled.done
	if err := lease.Unlock(t.Context()); !errors.Is(err, dlock.ErrUnreachable) {
		t.Errorf("Unlock in an outage: %v", err)
	}
	time.AfterFunc(shortOutage, up)
	unlock(t, holder)
	began := time.Now()
	next := waitFor(t.Context(), other, "unlocked")
	for _, w := range []*waiter{waitFor(t.Context(), other, "fair", dlock.WithFair()), next} {
		unlock(t, w.within(t, longTTL/2))
	}
	t.Logf("both names were free after %v", time.Since(began))
}

// TestCommandReleasesAfterShortOutage: the server is away when the command ends.
func TestCommandReleasesAfterShortOutage(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.Redis, inMemory...)
	p := proxy.Run(t, server.Addr())
	h := command.Start(t, "redis://"+p.Addr(), "exec", "--ttl", longTTL.String(), "a", "--", "sh", "-c", "echo; read line; exit 7")
	up := down(p, server)
	h.CloseInput()
	time.AfterFunc(shortOutage, up)
	_ = h.Cmd.Wait() // the exit status is checked below
	if status := h.Cmd.ProcessState.ExitCode(); status != 7 {
		t.Errorf("status %d, %q; want 7", status, h.Stderr.String())
	}
	_, other := openURL(t, server.URL())
	lease, err := other.TryLock(t.Context(), "a")
	if err != nil {
		t.Fatalf("after the command: %v", err)
	}
	unlock(t, lease)
}

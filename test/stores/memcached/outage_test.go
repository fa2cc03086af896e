package memcached

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/memcachelock"
	"github.com/dlock-go/dlock/test/harness/proxy"
	"github.com/dlock-go/dlock/test/harness/servers"
)

// connections makes a store open n connections, and leaves them idle.
func connections(t *testing.T, p *proxy.Proxy, store driver.Store, n int) {
	t.Helper()
	p.Hold()
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			if _, _, err := store.(driver.Finder).Find(t.Context(), "nothing"); err != nil {
				t.Error(err)
			}
		})
	}
	eventually(t, "all connections are open", func() bool { return p.Connections() >= n })
	p.Deliver()
	all.Wait()
}

// TestWaiterSurvivesSilentConnections: when the network has forgotten the open connections, and new
// ones work, a waiter gets the lock soon, whatever the limit of a call is.
func TestWaiterSurvivesSilentConnections(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.Memcached).Addr()
	const timeout = 10 * time.Minute
	p, through, direct := proxied(t, server, timeout)
	connections(t, p, through, 8)
	held := take(t, direct, "a")
	client := dlock.New(through, &dlock.Options{RequestTimeout: timeout})
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	asked := p.OnRequest(func(request []byte) bool { return string(request) == "mg dlock:a c\r\n" }, nil)
	got := make(chan error, 1)
	go func() {
		_, err := client.Lock(ctx, "a", dlock.WithTTL(time.Hour))
		got <- err
	}()
	happens(t, asked, "a poll of the waiter")
	p.Blackhole()
	if err := direct.Release(t.Context(), held); err != nil {
		t.Fatal(err)
	}
	if err := happens(t, got, "the lock"); err != nil {
		t.Error(err)
	}
}

// TestSilentConnectionsAreClosedTogether: after a renewal without an answer the store does not
// try the other old connections one after another.
func TestSilentConnectionsAreClosedTogether(t *testing.T) {
	t.Parallel()
	p, through, _ := proxied(t, servers.Run(t, servers.Memcached).Addr(), 0)
	held := take(t, through, "a")
	connections(t, p, through, 8)
	p.Blackhole()
	renew := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 700*time.Millisecond)
		defer cancel()
		return errors.Join(through.Renew(ctx, []driver.Grant{held})...)
	}
	if err := renew(); err == nil {
		t.Error("a renewal over a silent connection succeeded")
	}
	err := renew()
	for range 2 { // a slow machine may need more, but fewer than there are connections
		if err != nil {
			err = renew()
		}
	}
	if err != nil {
		t.Errorf("the fourth renewal: %v", err)
	}
}

// TestUnansweredReleaseIsUnreachable: the answer to a Release gets lost, and the lock is free when the
// store asks again. Release does not report that the lock was not held.
func TestUnansweredReleaseIsUnreachable(t *testing.T) {
	t.Parallel()
	p, through, _ := proxied(t, servers.Run(t, servers.Memcached).Addr(), 0)
	held := take(t, through, "a")
	lost := p.LoseReply(func([]byte) bool { return true }, false)
	if err := through.Release(t.Context(), held); !errors.Is(err, driver.ErrUnreachable) || errors.Is(err, driver.ErrNotHeld) {
		t.Errorf("Release without an answer: %v; want ErrUnreachable", err)
	}
	happens(t, lost, "the lost answer")
}

// TestWaiterIsWokenWhenTheServerIsGone: a waiter is woken when the server is gone, and again when
// it is back.
func TestWaiterIsWokenWhenTheServerIsGone(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.Memcached)
	store := openNow(t, server.Addr())
	take(t, store, "a")
	woken := make(chan struct{}, 1)
	stop, err := store.(driver.Watcher).Watch(t.Context(), driver.Request{Name: "a"}, func() {
		select {
		case woken <- struct{}{}:
		default:
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	happens(t, woken, "being woken because the server is gone")
	ask := func() error {
		_, err := store.Acquire(t.Context(), driver.Request{Name: "a", Owner: driver.NewOwner(), TTL: time.Minute})
		return err
	}
	if err := ask(); !errors.Is(err, driver.ErrUnreachable) {
		t.Errorf("Acquire without a server: %v; want ErrUnreachable", err)
	}
	if err := server.Restart(); err != nil {
		t.Fatal(err)
	}
	happens(t, woken, "being woken because the server is back")
	eventually(t, "the lock is granted", func() bool { return ask() == nil })
}

// TestRestartedServerMustAnswer: the refusal of a server that has just started comes from the server, not
// from the memory of the store.
func TestRestartedServerMustAnswer(t *testing.T) {
	t.Parallel()
	p := proxy.Run(t, servers.Run(t, servers.Memcached).Addr())
	store, err := memcachelock.New(p.Addr(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	ask := func(timeout time.Duration) error {
		ctx, cancel := context.WithTimeout(t.Context(), timeout)
		defer cancel()
		_, err := store.Acquire(ctx, driver.Request{Name: "a", Owner: driver.NewOwner(), TTL: time.Hour})
		return err
	}
	if err := ask(limit); !errors.Is(err, driver.ErrHeld) {
		t.Errorf("Acquire on a server that has just started: %v; want ErrHeld", err)
	}
	p.Hold()
	if err := ask(500 * time.Millisecond); err == nil || errors.Is(err, driver.ErrHeld) {
		t.Errorf("Acquire when no request reaches the server: %v; want an error other than ErrHeld", err)
	}
}

// TestLockFailsWhenTheServerIsGone: Lock returns ErrUnreachable when the server has been
// gone for a TTL.
func TestLockFailsWhenTheServerIsGone(t *testing.T) {
	t.Parallel()
	const ttl = 2 * time.Second
	server := servers.Run(t, servers.Memcached)
	holder, client := openNow(t, server.Addr()), clientNow(t, server.Addr(), true)
	take(t, holder, "a")
	waits := make(chan error, 1)
	go func() {
		_, err := client.Lock(bounded(t), "a", dlock.WithTTL(ttl))
		waits <- err
	}()
	gets := stat(t, server.Addr(), "cmd_get")
	eventually(t, "the waiter waits", func() bool { return stat(t, server.Addr(), "cmd_get") > gets+3 })
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := happens(t, waits, "the end of the wait"); !errors.Is(err, dlock.ErrUnreachable) {
		t.Errorf("Lock when the server is gone: %v; want ErrUnreachable", err)
	}
}

// TestSlowConnectionIsNotSilent: a renewal and a release of several round trips succeed over a slow
// connection. Only the time since the last answer counts as silence. A machine that adds a long delay
// of its own gets another try, with a new connection.
func TestSlowConnectionIsNotSilent(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.Memcached).Addr()
	const tries = 3
	for i := range tries {
		p, through, _ := proxied(t, server, 0)
		held := take(t, through, fmt.Sprint(i))
		p.Delay(300 * time.Millisecond) // each way
		errs := through.Renew(t.Context(), []driver.Grant{held})
		err := through.Release(t.Context(), held)
		if errs == nil && err == nil {
			return
		}
		t.Logf("Renew: %v, Release: %v", errs, err)
	}
	t.Errorf("a renewal or a release failed in each of %d tries", tries)
}

// TestManyLongNotesAreRenewed: the answers to a renewal of many locks with long notes do not fit into the
// buffers of a connection. The store reads them before it sends the notes back.
func TestManyLongNotesAreRenewed(t *testing.T) {
	t.Parallel()
	store := openNow(t, servers.Run(t, servers.Memcached, "-m", "256").Addr())
	grants := make([]driver.Grant, 50)
	for i := range grants {
		var err error
		grants[i], err = store.Acquire(t.Context(), driver.Request{Name: fmt.Sprint(i), Owner: driver.NewOwner(), TTL: time.Minute,
			Holder: driver.Holder{Note: strings.Repeat("x", 500_000)}})
		if err != nil {
			t.Fatal(err)
		}
	}
	if errs := store.Renew(t.Context(), grants); errs != nil {
		t.Errorf("Renew: %v", errs[0])
	}
}

// TestTooManyConnectionsAreAnOutage: a server whose connections are all in use is not misconfigured, so
// that waiters go on.
func TestTooManyConnectionsAreAnOutage(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.Memcached, "-c", "64")
	for {
		conn, err := net.Dial("tcp", server.Addr())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := conn.Write([]byte("version\r\n")); err != nil {
			break
		}
		if line, err := bufio.NewReader(conn).ReadString('\n'); err != nil || strings.HasPrefix(line, "ERROR") {
			break
		}
	}
	store := openNow(t, server.Addr())
	_, err := store.Acquire(t.Context(), driver.Request{Name: "x", Owner: driver.NewOwner(), TTL: time.Minute})
	if !errors.Is(err, driver.ErrUnreachable) || errors.Is(err, driver.ErrMisconfigured) || !strings.Contains(err.Error(), "too many") {
		t.Errorf("Acquire: %v; want ErrUnreachable and the reason", err)
	}
}

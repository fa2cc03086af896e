package memcached

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/drivertest"
	"github.com/dlock-go/dlock/memcachelock"
	"github.com/dlock-go/dlock/test/harness/proxy"
	"github.com/dlock-go/dlock/test/harness/servers"
)

// underway is how many calls have to be under way before further ones share round trips.
const underway = 8

// crowded is a store with so many unanswered calls under way that all others share round trips.
type crowded struct {
	*memcachelock.Store
	end func() // ends these calls
}

func (c crowded) Close() error {
	c.end()
	return c.Store.Close()
}

var crowds atomic.Int64

// openCrowded opens a store behind the proxy, and holds back the requests of so many calls.
func openCrowded(p *proxy.Proxy) (driver.Store, error) {
	return openCrowdedWith(p, &memcachelock.Options{RestartDelay: -1, Timeout: 10 * time.Minute})
}

func openCrowdedWith(p *proxy.Proxy, opts *memcachelock.Options) (driver.Store, error) {
	store, err := memcachelock.New(p.Addr(), opts)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	var calls, came sync.WaitGroup
	for i := range underway {
		name := fmt.Sprintf("crowd/%d/%d", crowds.Add(1), i)
		came.Add(1)
		p.OnRequest(func(request []byte) bool { return bytes.Contains(request, []byte(name+" ")) }, func(*proxy.Conn) {
			came.Done()
			<-ctx.Done()
		})
		calls.Go(func() { _, _, _ = store.Find(ctx, name) })
	}
	came.Wait()
	return crowded{store, func() {
		cancel()
		calls.Wait()
	}}, nil
}

// inACrowd returns a store whose calls share round trips through a proxy, and one that reaches the
// server directly.
func inACrowd(t *testing.T, server string) (p *proxy.Proxy, through, direct driver.Store) {
	t.Helper()
	p = proxy.Run(t, server)
	through, err := openCrowded(p)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := through.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := through.Release(t.Context(), take(t, through, "warm-up of "+t.Name())); err != nil {
		t.Fatal(err)
	}
	return p, through, openNow(t, server)
}

// TestConformanceInACrowd: calls that share round trips keep every clause.
func TestConformanceInACrowd(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.Memcached)
	p := proxy.Run(t, server.Addr())
	on(server).Conform(t, drivertest.Config{
		TTL:  2 * time.Second,
		Open: func(context.Context) (driver.Store, error) { return openCrowded(p) },
	})
}

// TestCrowdSharesConnections: 64 goroutines that lock, each a name of its own, need a few connections.
func TestCrowdSharesConnections(t *testing.T) {
	t.Parallel()
	p, through, _ := inACrowd(t, servers.Run(t, servers.Memcached).Addr())
	p.Hold()
	var all sync.WaitGroup
	for i := range 64 {
		all.Go(func() {
			if err := through.Release(t.Context(), take(t, through, fmt.Sprint("name/", i))); err != nil {
				t.Error(err)
			}
		})
	}
	<-time.After(300 * time.Millisecond) // until all have asked
	n := p.Connections()
	p.Deliver()
	all.Wait()
	if n > 2*underway {
		t.Errorf("64 goroutines have opened %d connections; want at most %d", n, 2*underway)
	}
}

// TestCrowdForOneLock: of 64 goroutines that want one lock, in shared round trips, none has it beside
// another, and the tokens rise.
func TestCrowdForOneLock(t *testing.T) {
	t.Parallel()
	_, through, _ := inACrowd(t, servers.Run(t, servers.Memcached).Addr())
	var inside, last atomic.Uint64
	var grants atomic.Int64
	var all sync.WaitGroup
	for range 64 {
		all.Go(func() {
			for range 20 {
				grant, err := through.Acquire(t.Context(), driver.Request{Name: "common", Owner: driver.NewOwner(), TTL: time.Minute})
				if errors.Is(err, driver.ErrHeld) {
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				grants.Add(1)
				if n := inside.Add(1); n != 1 {
					t.Errorf("%d holders of one lock", n)
				}
				if before := last.Swap(grant.Token); before >= grant.Token {
					t.Errorf("token %d after %d", grant.Token, before)
				}
				inside.Add(^uint64(0))
				if err := through.Release(t.Context(), grant); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if grants.Load() == 0 {
		t.Error("nobody had the lock")
	}
}

// TestBadItemInACrowd: an item that another program stored, and that no lock can be, fails the attempts for
// its name and no others. A release beside them may lose its answer, and no more.
func TestBadItemInACrowd(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.Memcached, "-I", "4m").Addr()
	item := fmt.Sprintf("set dlock:bad 0 0 %d\r\n%s\r\n", 2<<20, bytes.Repeat([]byte("x"), 2<<20))
	if answer, err := converse(t.Context(), server, item, ""); err != nil || answer != "STORED\r\n" {
		t.Fatalf("storing a large item: %q, %v", answer, err)
	}
	_, through, _ := inACrowd(t, server)
	var all sync.WaitGroup
	for i := range 48 {
		all.Go(func() {
			for n := range 5 {
				if i%16 != 0 {
					err := through.Release(t.Context(), take(t, through, fmt.Sprint("good/", i, "/", n)))
					if err != nil && !errors.Is(err, driver.ErrUnreachable) {
						t.Error(err)
					}
					continue
				}
				_, err := through.Acquire(t.Context(), driver.Request{Name: "bad", Owner: driver.NewOwner(), TTL: time.Minute})
				if !errors.Is(err, driver.ErrMisconfigured) {
					t.Errorf("locking a name under which there is something else: %v; want ErrMisconfigured", err)
				}
			}
		})
	}
	all.Wait()
}

// TestRestartInACrowd: a server that was restarted grants no lock early, and a number that it uses again
// releases no other lock, although calls share round trips.
func TestRestartInACrowd(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.Memcached)
	_, through, direct := inACrowd(t, server.Addr())
	before := take(t, through, "a")
	if err := errors.Join(server.Kill(), server.Restart()); err != nil {
		t.Fatal(err)
	}
	p := proxy.Run(t, server.Addr())
	careful, err := openCrowdedWith(p, &memcachelock.Options{Timeout: 10 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer careful.Close()
	_, err = careful.Acquire(t.Context(), driver.Request{Name: "b", Owner: driver.NewOwner(), TTL: time.Minute})
	if !errors.Is(err, driver.ErrHeld) {
		t.Errorf("an attempt just after the restart: %v; want ErrHeld", err)
	}
	after := take(t, direct, "a") // the first number, as before
	for range 2 {                 // the first call notices that the connections are gone
		err = through.Release(t.Context(), before)
	}
	if !errors.Is(err, driver.ErrNotHeld) {
		t.Errorf("Release of a lock from before the restart: %v; want ErrNotHeld", err)
	}
	if err := direct.Release(t.Context(), after); err != nil {
		t.Errorf("Release of the lock that is held: %v", err)
	}
}

// TestSilentConnectionOfACrowd: when the network has forgotten the connections that calls share, each call
// is made again over another one. A release that may have been carried out does not report ErrNotHeld.
func TestSilentConnectionOfACrowd(t *testing.T) {
	t.Parallel()
	p, through, _ := inACrowd(t, servers.Run(t, servers.Memcached).Addr())
	p.Blackhole()
	var all sync.WaitGroup
	for i := range 16 {
		all.Go(func() {
			if err := through.Release(t.Context(), take(t, through, fmt.Sprint("name/", i))); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	held := take(t, through, "held")
	lost := p.LoseReply(func(request []byte) bool { return bytes.Contains(request, []byte("md dlock:held ")) }, false)
	if err := through.Release(t.Context(), held); !errors.Is(err, driver.ErrUnreachable) || errors.Is(err, driver.ErrNotHeld) {
		t.Errorf("Release without an answer: %v; want ErrUnreachable", err)
	}
	happens(t, lost, "the lost answer")
}

// TestCloseInACrowd: Close does not wait for ever for a round trip without an answer.
func TestCloseInACrowd(t *testing.T) {
	t.Parallel()
	p, through, _ := inACrowd(t, servers.Run(t, servers.Memcached).Addr())
	client := dlock.New(through, nil)
	came, deliver := heldBack(t, p, "late-close")
	failed := make(chan error, 1)
	go func() {
		_, err := client.Lock(t.Context(), "close", dlock.WithTTL(time.Hour), dlock.WithNote("late-close"))
		failed <- err
	}()
	happens(t, came, "the request")
	closed := make(chan error, 1)
	go func() { closed <- errors.Join(client.Close(), through.Close()) }()
	_ = happens(t, closed, "the end of Close") // it may report a lock that is left to expire
	if err := happens(t, failed, "the end of the call"); err == nil {
		t.Error("a lock was granted although its request was not delivered")
	}
	deliver()
}

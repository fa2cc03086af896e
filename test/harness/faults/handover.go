package faults

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/test/harness/await"
	"github.com/dlock-go/dlock/test/harness/proxy"
)

// HandOver are the faults while goroutines of one process hand a lock over. They need
// a server of their own at Addr.
var HandOver = []Fault{
	{"lost answers during hand-overs", disturbHandOver(func(p *proxy.Proxy, name func([]byte) bool) <-chan struct{} {
		return p.LoseReply(name, true)
	})},
	{"connections that break during hand-overs", disturbHandOver(func(p *proxy.Proxy, name func([]byte) bool) <-chan struct{} {
		return p.OnRequest(name, (*proxy.Conn).Reset)
	})},
}

// HandOverBound are the same faults for stores whose locks are bound to a
// connection.
var HandOverBound = []Fault{
	{"connections that are killed during hand-overs", killDuringHandOver},
}

// countingStore counts the locks that the store granted.
type countingStore struct {
	driver.Store
	driver.Watcher
	grants atomic.Int64
}

func (c *countingStore) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	grant, err := c.Store.Acquire(ctx, req)
	if err == nil {
		c.grants.Add(1)
	}
	return grant, err
}

// countingClient returns a client, and its store, which counts.
func (r rig) countingClient(t testing.TB) (*dlock.Client, *countingStore) {
	t.Helper()
	store := r.open(t)
	watcher, watches := store.(driver.Watcher)
	if !watches {
		t.Fatal("the store implements no Watcher")
	}
	counted := &countingStore{Store: store, Watcher: watcher}
	return clientOf(t, counted, r.shortTimeout()), counted
}

// disturbHandOver returns a fault that checks that there is one holder at a time, that tokens rise, that no
// waiter is forgotten, and that the lock is free in the end. disturb disturbs the next request about a name.
func disturbHandOver(disturb func(p *proxy.Proxy, name func(request []byte) bool) <-chan struct{}) func(t *testing.T, r rig) {
	return func(t *testing.T, r rig) {
		through, p := r.proxied(t)
		c, store := through.countingClient(t)
		through.warm(t, c)
		name := "in-a-row " + driver.NewOwner().Hex() // the others run beside it
		r.mustBeFree(t, name, "it was never locked")
		r.relay(t, c, store, name, false, func() { await.Event(t, disturb(p, mentions(name)), "a disturbance") })
	}
}

// killDuringHandOver is disturbHandOver for locks that are bound to a
// connection.
func killDuringHandOver(t *testing.T, r rig) {
	c, store := r.countingClient(t)
	r.relay(t, c, store, "severed-in-a-row", true, func() { r.killConnections(t) })
}

// relay lets goroutines of one client hold a lock in turn while disturb is called
// repeatedly. loses reports that a disturbance may lose the lock.
func (r rig) relay(t *testing.T, c *dlock.Client, store *countingStore, name string, loses bool, disturb func()) {
	t.Helper()
	const goroutines, disturbances = 8, 20
	var holds atomic.Int64
	stop := make(chan struct{})
	var all sync.WaitGroup
	run := &relayRunner{t: t, client: c, name: name, ttl: r.TTL, loses: loses}
	for range goroutines {
		all.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if run.once() {
					holds.Add(1)
				}
			}
		})
	}
	end := sync.OnceFunc(func() {
		close(stop)
		all.Wait()
	})
	defer end() // also if the test fails meanwhile
	for range disturbances {
		before := holds.Load()
		disturb()
		await.Until(t, "a goroutine gets the lock after a disturbance", func() bool { return holds.Load() > before })
	}
	end()
	handOvers := holds.Load() - store.grants.Load()
	t.Logf("%d holds, %d hand-overs, %d disturbances", holds.Load(), handOvers, disturbances)
	switch {
	case loses && handOvers > 0:
		t.Error("a lock was handed over although its connection may have died")
	case !loses && handOvers <= 0:
		t.Error("no lock was handed over")
	}
	unlock(t, r.lock(t, r.client(t), name))
}

// relayRunner is the state that the goroutines of a relay share.
type relayRunner struct {
	t      *testing.T
	client *dlock.Client
	name   string
	ttl    time.Duration
	loses  bool // a disturbance may lose the lock
	inside atomic.Int64
	last   atomic.Uint64 // the largest token so far
}

// once acquires and releases the lock, and reports whether it was acquired.
func (r *relayRunner) once() bool {
	lease, err := r.client.Lock(r.t.Context(), r.name, dlock.WithTTL(r.ttl))
	if err != nil {
		if !errors.Is(err, dlock.ErrUnreachable) {
			r.t.Errorf("Lock: %v", err)
		}
		return false
	}
	n := r.inside.Add(1)
	token, last := lease.Token(), r.last.Load()
	if lease.Context().Err() == nil { // no other goroutine has acquired the lock meanwhile
		if n != 1 {
			r.t.Errorf("%d goroutines hold the lock", n)
		}
		if token <= last {
			r.t.Errorf("token %d after %d", token, last)
		}
	}
	r.last.Store(max(token, last))
	r.inside.Add(-1)
	err = lease.Unlock(r.t.Context())
	if lost := r.loses && errors.Is(err, dlock.ErrNotHeld); err != nil && !lost && !errors.Is(err, dlock.ErrUnreachable) {
		r.t.Errorf("Unlock: %v", err)
	}
	return true
}

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
	"github.com/dlock-go/dlock/test/harness/proxy"
)

// HandOver are the faults of stores that hand a lock over inside a process in one
// step. They need a server of their own at Addr.
var HandOver = []Fault{
	{"a lost answer to a hand-over", loseHandOver},
	{"a hand-over that arrives after the lock was released", lateHandOver},
	{"connections that break during hand-overs", resetDuringHandOver},
}

// HandOverBound are the same faults for stores whose locks are bound to a
// connection.
var HandOverBound = []Fault{
	{"connections that are killed during hand-overs", killDuringHandOver},
}

// countingPasser counts the calls of Pass.
type countingPasser struct {
	driver.Store
	driver.Watcher
	passer driver.Passer
	passes atomic.Int64
}

func (c *countingPasser) Pass(ctx context.Context, grant driver.Grant, req driver.Request) (driver.Grant, error) {
	c.passes.Add(1)
	return c.passer.Pass(ctx, grant, req)
}

// passingClient returns a client, and the store that counts its hand-overs.
func (r Rig) passingClient(t testing.TB) (*dlock.Client, *countingPasser) {
	t.Helper()
	store := r.open(t)
	watcher, watches := store.(driver.Watcher)
	passer, passes := store.(driver.Passer)
	if !watches || !passes {
		t.Fatal("the store implements no Passer, or no Watcher")
	}
	counted := &countingPasser{Store: store, Watcher: watcher, passer: passer}
	c := dlock.New(counted, r.shortTimeout())
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("close the client: %v", err)
		}
	})
	return c, counted
}

// loseHandOver checks that Unlock succeeds, and that the next waiter gets the
// lock long before the end of the TTL, although the outcome of the hand-over is
// unknown.
func loseHandOver(t *testing.T, r Rig) {
	through, p := r.proxied(t)
	c, store := through.passingClient(t)
	through.warm(t, c)
	for name, reset := range map[string]bool{"handover-reset": true, "handover-unanswered": false} {
		// A slow process hands nothing over, because its time slice has ended.
		const tries = 100
		for try := 1; store.passes.Load() == 0; try++ {
			if try > tries {
				t.Fatalf("%s: no hand-over in %d tries", name, tries)
			}
			r.loseHandOver(t, c, p, name, reset)
		}
		store.passes.Store(0)
	}
}

func (r Rig) loseHandOver(t *testing.T, c *dlock.Client, p *proxy.Proxy, name string, reset bool) {
	t.Helper()
	r.mustBeFree(t, name, "it was never locked")
	first := r.lock(t, c, name, dlock.WithTTL(10*r.TTL))
	next := make(chan attempt, 1)
	go func() {
		lease, err := c.Lock(t.Context(), name, dlock.WithTTL(10*r.TTL), dlock.WithNote(attemptNote))
		next <- attempt{lease, err}
	}()
	wait(t, time.Millisecond/4) // usually enough to join the queue
	lost := p.LoseReply(mentions(attemptNote), reset)
	start := time.Now()
	if err := first.Unlock(t.Context()); err != nil {
		t.Errorf("%s: Unlock: %v", name, err)
	}
	await(t, lost, "the lost answer")
	got := await(t, next, "the lock")
	if got.err != nil {
		t.Fatalf("%s: Lock: %v", name, got.err)
	}
	if took := time.Since(start); took > 3*r.TTL {
		t.Errorf("%s: the next waiter got the lock after %v; the TTL is %v", name, took, 10*r.TTL)
	}
	if got.lease.Token() <= first.Token() {
		t.Errorf("%s: token %d after %d", name, got.lease.Token(), first.Token())
	}
	r.mustBeHeld(t, name, "the next waiter holds it")
	unlock(t, got.lease)
	r.mustBeFree(t, name, "it was unlocked")
}

// lateHandOver checks that a hand-over that arrives after the release fails and
// mustBeFree nothing.
func lateHandOver(t *testing.T, r Rig) {
	through, p := r.proxied(t)
	store := r.open(t)
	c, passer := through.passingClient(t)
	through.warm(t, c)
	through.warmStore(t, passer.Store)
	grant, _ := r.acquireWhenFree(t, store, "late-handover")
	next := driver.Request{Name: "late-handover", Owner: driver.NewOwner(), TTL: r.TTL, Holder: driver.Holder{Note: attemptNote}}
	held := p.OnRequest(mentions(attemptNote), func(*proxy.Conn) { p.Hold() })
	outcome := make(chan error, 1)
	go func() { _, err := passer.Pass(t.Context(), grant, next); outcome <- err }()
	await(t, held, "the request")
	if err := store.Release(t.Context(), grant); err != nil {
		t.Fatal(err)
	}
	p.Deliver()
	if err := await(t, outcome, "the late answer"); !errors.Is(err, driver.ErrNotHeld) {
		t.Errorf("Pass of a released lock: %v", err)
	}
	r.mustBeFree(t, "late-handover", "it was released")
}

// resetDuringHandOver checks that there is one holder at a time, that tokens
// rise, that no waiter is forgotten, and that the lock is free in the end.
func resetDuringHandOver(t *testing.T, r Rig) {
	through, p := r.proxied(t)
	c, store := through.passingClient(t)
	through.warm(t, c)
	const name = "in-a-row"
	r.mustBeFree(t, name, "it was never locked")
	r.relay(t, c, store, name, false, func() {
		await(t, p.OnRequest(mentions(name), (*proxy.Conn).Reset), "a broken connection")
	})
}

// killDuringHandOver is resetDuringHandOver for locks that are bound to a
// connection.
func killDuringHandOver(t *testing.T, r Rig) {
	c, store := r.passingClient(t)
	r.relay(t, c, store, "in-a-row", true, func() { r.killConnections(t) })
}

// relay lets goroutines of one client hold a lock in turn while disturb is called
// repeatedly. loses reports that a disturbance may lose the lock.
func (r Rig) relay(t *testing.T, c *dlock.Client, store *countingPasser, name string, loses bool, disturb func()) {
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
	for range disturbances {
		before := holds.Load()
		disturb()
		for deadline := time.Now().Add(limit); holds.Load() == before; wait(t, time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("no goroutine got the lock within %v after a disturbance", limit)
			}
		}
	}
	close(stop)
	all.Wait()
	t.Logf("%d holds, %d hand-overs, %d disturbances", holds.Load(), store.passes.Load(), disturbances)
	if store.passes.Load() == 0 {
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

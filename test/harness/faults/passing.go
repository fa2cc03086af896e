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

// Passing are the faults of stores that pass a lock on within a process, in one
// step, for rigs with a server of their own at Addr.
var Passing = []Fault{
	{"a lost answer when a lock is passed on", losePassed},
	{"a lock that arrives when nobody waits for it", latePass},
	{"connections that break while a lock is passed on", breakWhilePassing},
}

// PassingBound is the same for stores whose locks end with their connection.
var PassingBound = []Fault{
	{"connections that are killed while a lock is passed on", killWhilePassing},
}

// countingPasser counts the locks that are passed on.
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

// passingClient is a client whose locks are seen being passed on.
func (r Rig) passingClient(t testing.TB) (*dlock.Client, *countingPasser) {
	t.Helper()
	store := r.open(t)
	watcher, watches := store.(driver.Watcher)
	passer, passes := store.(driver.Passer)
	if !watches || !passes {
		t.Fatal("the store passes nothing on, or wakes nobody")
	}
	counted := &countingPasser{Store: store, Watcher: watcher, passer: passer}
	c := dlock.New(counted, r.impatient())
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("close the client: %v", err)
		}
	})
	return c, counted
}

// losePassed: the lock is unlocked, and the next one gets it long before the TTL is
// over, although nobody knows whether it was passed on.
func losePassed(t *testing.T, r Rig) {
	through, p := r.proxied(t)
	c, store := through.passingClient(t)
	through.warm(t, c)
	for name, reset := range map[string]bool{"passed-reset": true, "passed-silent": false} {
		// A process that is slow has no lock to pass on: its turn is over.
		const tries = 100
		for try := 1; store.passes.Load() == 0; try++ {
			if try > tries {
				t.Fatalf("%s: nothing was passed on in %d tries", name, tries)
			}
			r.losePassed(t, c, p, name, reset)
		}
		store.passes.Store(0)
	}
}

func (r Rig) losePassed(t *testing.T, c *dlock.Client, p *proxy.Proxy, name string, reset bool) {
	t.Helper()
	r.grants(t, name, "nobody has it yet")
	first := r.lock(t, c, name, dlock.WithTTL(10*r.TTL))
	next := make(chan attempt, 1)
	go func() {
		lease, err := c.Lock(t.Context(), name, dlock.WithTTL(10*r.TTL), dlock.WithNote(askerNote))
		next <- attempt{lease, err}
	}()
	wait(t, time.Millisecond/4) // in which it joins the queue, or not
	lost := p.LoseReply(mentions(askerNote), reset)
	start := time.Now()
	if err := first.Unlock(t.Context()); err != nil {
		t.Errorf("%s: Unlock: %v", name, err)
	}
	happens(t, lost, "the lost answer")
	got := happens(t, next, "the lock")
	if got.err != nil {
		t.Fatalf("%s: Lock: %v", name, got.err)
	}
	if took := time.Since(start); took > 3*r.TTL {
		t.Errorf("%s: the next one had the lock after %v; the TTL is %v", name, took, 10*r.TTL)
	}
	if got.lease.Token() <= first.Token() {
		t.Errorf("%s: token %d after %d", name, got.lease.Token(), first.Token())
	}
	r.refuses(t, name, "the next one has it")
	unlock(t, got.lease)
	r.grants(t, name, "it was unlocked")
}

// latePass: what is to pass the lock on arrives when it was unlocked, and makes nobody
// its holder.
func latePass(t *testing.T, r Rig) {
	through, p := r.proxied(t)
	store := r.open(t)
	c, passer := through.passingClient(t)
	through.warm(t, c)
	through.warmStore(t, passer.Store)
	grant, _ := r.seize(t, store, "late-pass")
	next := driver.Request{Name: "late-pass", Owner: driver.NewOwner(), TTL: r.TTL, Holder: driver.Holder{Note: askerNote}}
	held := p.OnRequest(mentions(askerNote), func(*proxy.Conn) { p.Hold() })
	outcome := make(chan error, 1)
	go func() { _, err := passer.Pass(t.Context(), grant, next); outcome <- err }()
	happens(t, held, "the request")
	if err := store.Release(t.Context(), grant); err != nil {
		t.Fatal(err)
	}
	p.Deliver()
	if err := happens(t, outcome, "the late answer"); !errors.Is(err, driver.ErrNotHeld) {
		t.Errorf("Pass of what was released: %v", err)
	}
	r.grants(t, "late-pass", "nobody has it")
}

// breakWhilePassing: one has the lock at a time, tokens rise, nobody waits for ever
// and nothing is left.
func breakWhilePassing(t *testing.T, r Rig) {
	through, p := r.proxied(t)
	c, store := through.passingClient(t)
	through.warm(t, c)
	const name = "in-a-row"
	r.grants(t, name, "nobody has it yet")
	r.relay(t, c, store, name, false, func() {
		happens(t, p.OnRequest(mentions(name), (*proxy.Conn).Reset), "a broken connection")
	})
}

// killWhilePassing is breakWhilePassing for locks that end with their connection.
func killWhilePassing(t *testing.T, r Rig) {
	c, store := r.passingClient(t)
	r.relay(t, c, store, "in-a-row", true, func() { r.killConnections(t) })
}

// relay lets goroutines of one client have a lock in turn, while something is
// disturbed again and again, by which it may be lost, or not.
func (r Rig) relay(t *testing.T, c *dlock.Client, store *countingPasser, name string, loses bool, disturb func()) {
	t.Helper()
	const goroutines, disturbances = 8, 20
	var turns atomic.Int64
	stop := make(chan struct{})
	var all sync.WaitGroup
	run := &runner{t: t, client: c, name: name, ttl: r.TTL, loses: loses}
	for range goroutines {
		all.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if run.once() {
					turns.Add(1)
				}
			}
		})
	}
	for range disturbances {
		before := turns.Load()
		disturb()
		for deadline := time.Now().Add(limit); turns.Load() == before; wait(t, time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("nobody had the lock for %v after it was disturbed", limit)
			}
		}
	}
	close(stop)
	all.Wait()
	t.Logf("%d turns, %d passed on, disturbed %d times", turns.Load(), store.passes.Load(), disturbances)
	if store.passes.Load() == 0 {
		t.Error("nothing was passed on")
	}
	unlock(t, r.lock(t, r.client(t), name))
}

// runner is one of those who have a lock in turn.
type runner struct {
	t      *testing.T
	client *dlock.Client
	name   string
	ttl    time.Duration
	loses  bool // the lock now and then
	inside atomic.Int64
	last   atomic.Uint64 // the largest token so far
}

// once has the lock once, and says whether it had.
func (r *runner) once() bool {
	lease, err := r.client.Lock(r.t.Context(), r.name, dlock.WithTTL(r.ttl))
	if err != nil {
		if !errors.Is(err, dlock.ErrUnreachable) {
			r.t.Errorf("Lock: %v", err)
		}
		return false
	}
	n := r.inside.Add(1)
	token, last := lease.Token(), r.last.Load()
	if lease.Context().Err() == nil { // then nobody else has had it meanwhile
		if n != 1 {
			r.t.Errorf("%d have the lock", n)
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

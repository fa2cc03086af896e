package faults

import (
	"context"
	"errors"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
)

// Rig is a store to try faults on.
type Rig struct {
	// Open connects to the state that all processes share.
	Open func(ctx context.Context) (driver.Store, error)
	// Command starts the test binary again, as a process that calls Play with
	// the same Open.
	Command func() *exec.Cmd
	// TTL of the locks.
	TTL time.Duration
}

// Fault is something that happens, and what is expected then.
type Fault struct {
	Name string
	Try  func(t *testing.T, r Rig)
}

// Leases are the faults that every store with leases must survive.
var Leases = []Fault{
	{"SIGKILL of the holder", killHolder},
	{"SIGSTOP of the holder for three TTLs", pauseHolder},
	{"SIGSTOP inside Do for three TTLs", pauseInsideDo},
	{"SIGSTOP between check and write", pauseBetweenCheckAndWrite},
	{"a fair waiter that never comes back", deadFairWaiter},
	{"cancelled waiters", cancelWaiters},
	{"unlock with a cancelled context", unlockCancelled},
}

// Run tries all faults, each as a parallel subtest.
func Run(t *testing.T, r Rig, faults []Fault) {
	for _, fault := range faults {
		t.Run(fault.Name, func(t *testing.T) {
			t.Parallel()
			fault.Try(t, r)
		})
	}
}

// slack is how late an expiry may be noticed.
const slack = time.Second

func (r Rig) client(t *testing.T) *dlock.Client {
	t.Helper()
	store, err := r.Open(t.Context())
	if err != nil {
		t.Fatalf("open the store: %v", err)
	}
	c := dlock.New(store, nil)
	t.Cleanup(func() {
		if err := errors.Join(c.Close(), store.Close()); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return c
}

func (r Rig) lock(t *testing.T, c *dlock.Client, name string, opts ...dlock.Option) *dlock.Lease {
	t.Helper()
	limit, cancel := context.WithTimeout(t.Context(), 10*r.TTL+10*time.Second)
	defer cancel()
	lease, err := c.Lock(limit, name, append([]dlock.Option{dlock.WithTTL(r.TTL)}, opts...)...)
	if err != nil {
		t.Fatalf("Lock(%q): %v", name, err)
	}
	return lease
}

// killHolder: the next one has it within the TTL, with a larger token.
func killHolder(t *testing.T, r Rig) {
	holder, rival := r.puppet(t), r.client(t)
	token := holder.mustLock("killed", r.TTL)
	if _, err := rival.TryLock(t.Context(), "killed"); !errors.Is(err, dlock.ErrHeld) {
		t.Fatalf("the lock of another process is not held here: %v", err)
	}
	holder.kill()
	start := time.Now()
	lease := r.lock(t, rival, "killed")
	if waited := time.Since(start); waited > r.TTL+slack {
		t.Errorf("free %v after the holder died; the TTL is %v", waited, r.TTL)
	}
	if lease.Token() <= token {
		t.Errorf("token %d after %d", lease.Token(), token)
	}
	unlock(t, lease)
}

// pauseHolder: another one gets the lock; when the first goes on, it finds out
// at its first look, and its unlock leaves the other's lock alone.
func pauseHolder(t *testing.T, r Rig) {
	holder, rival := r.puppet(t), r.client(t)
	token := holder.mustLock("paused", r.TTL)
	holder.signal(syscall.SIGSTOP)
	lease := r.lock(t, rival, "paused")
	wait(t, 2*r.TTL)
	holder.send(order{Do: "check"}) // is the first thing it does when it goes on
	holder.signal(syscall.SIGCONT)
	if a := holder.hear(); a.Err != "cancelled" {
		t.Errorf("after three TTLs the lease's context says %q", a.Err)
	}
	if a := holder.do(order{Do: "unlock"}); a.Err != "not held" {
		t.Errorf("Unlock of the lost lock says %q", a.Err)
	}
	if _, err := r.client(t).TryLock(t.Context(), "paused"); !errors.Is(err, dlock.ErrHeld) {
		t.Errorf("the late Unlock freed somebody else's lock: %v", err)
	}
	if err := lease.Context().Err(); err != nil {
		t.Errorf("the late Unlock ended somebody else's lease: %v", err)
	}
	if lease.Token() <= token {
		t.Errorf("token %d after %d", lease.Token(), token)
	}
	unlock(t, lease)
}

// pauseInsideDo: the context that Do hands out is no worse than that of a lease.
func pauseInsideDo(t *testing.T, r Rig) {
	holder, rival := r.puppet(t), r.client(t)
	holder.do(order{Do: "do", Name: "inside", TTL: r.TTL})
	holder.signal(syscall.SIGSTOP)
	lease := r.lock(t, rival, "inside")
	wait(t, 2*r.TTL)
	holder.send(order{Do: "check"})
	holder.signal(syscall.SIGCONT)
	if a := holder.hear(); a.Err != "cancelled" {
		t.Errorf("after three TTLs the context of Do says %q", a.Err)
	}
	unlock(t, lease)
}

// pauseBetweenCheckAndWrite: no lock can prevent that two act here. The resource
// can, by the token.
func pauseBetweenCheckAndWrite(t *testing.T, r Rig) {
	resource := new(fenced)
	holder, rival := r.puppet(t), r.client(t)
	token := holder.mustLock("fenced", r.TTL)
	if checked := holder.do(order{Do: "check"}); checked.Err != "" || !resource.write(token) {
		t.Fatalf("the holder may not write: %+v", checked)
	}
	holder.signal(syscall.SIGSTOP) // it has looked, and is about to write
	holder.send(order{Do: "write"})
	lease := r.lock(t, rival, "fenced")
	if !resource.write(lease.Token()) {
		t.Errorf("the new holder may not write with token %d", lease.Token())
	}
	holder.signal(syscall.SIGCONT)
	if stale := holder.hear(); resource.write(stale.Token) {
		t.Errorf("a stale write with token %d got through after token %d", stale.Token, lease.Token())
	}
	if !resource.write(lease.Token()) {
		t.Error("the new holder may not write any more")
	}
	unlock(t, lease)
}

// fenced is a resource that refuses tokens smaller than one it has seen.
type fenced struct{ seen uint64 }

func (f *fenced) write(token uint64) bool {
	if token < f.seen {
		return false
	}
	f.seen = token
	return true
}

// deadFairWaiter: those behind it get their turn when its place has lapsed.
func deadFairWaiter(t *testing.T, r Rig) {
	c, rival := r.client(t), r.client(t)
	if !c.Traits().Fair {
		return
	}
	lease := r.lock(t, c, "queue", dlock.WithFair())
	dead := driver.Request{Name: "queue", Owner: driver.NewOwner(), TTL: r.TTL, Fair: true, Queue: true}
	store, err := r.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	if _, err := store.Acquire(t.Context(), dead); !errors.Is(err, dlock.ErrHeld) {
		t.Fatalf("a fair attempt: %v", err)
	}
	unlock(t, lease)
	start := time.Now()
	next := r.lock(t, rival, "queue", dlock.WithFair())
	if waited := time.Since(start); waited > r.TTL+slack {
		t.Errorf("a dead waiter held up the next for %v; the TTL is %v", waited, r.TTL)
	}
	unlock(t, next)
}

// cancelWaiters: they return at once, and leave nothing behind.
func cancelWaiters(t *testing.T, r Rig) {
	holder, waiter := r.client(t), r.client(t)
	lease := r.lock(t, holder, "cancelled")
	modes := [][]dlock.Option{nil}
	if waiter.Traits().Fair {
		modes = append(modes, []dlock.Option{dlock.WithFair()})
	}
	for _, opts := range modes {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(r.TTL/10, cancel)
		start := time.Now()
		if _, err := waiter.Lock(ctx, "cancelled", opts...); !errors.Is(err, context.Canceled) {
			t.Errorf("Lock: %v; want that it was cancelled", err)
		}
		if took := time.Since(start); took > r.TTL/10+slack {
			t.Errorf("a cancelled wait took %v", took)
		}
	}
	unlock(t, lease)
	for _, opts := range modes { // the queue has moved on
		next, err := holder.Lock(t.Context(), "cancelled", append(opts, dlock.WithTTL(r.TTL), dlock.WithWait(r.TTL/2))...)
		if err != nil {
			t.Fatalf("Lock after the waiters gave up: %v", err)
		}
		unlock(t, next)
	}
}

// unlockCancelled: the lock is free although the request was cancelled.
func unlockCancelled(t *testing.T, r Rig) {
	c, rival := r.client(t), r.client(t)
	ctx, cancel := context.WithCancel(t.Context())
	lease, err := c.Lock(ctx, "request", dlock.WithTTL(r.TTL))
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := lease.Unlock(ctx); err != nil {
		t.Errorf("Unlock: %v", err)
	}
	next, err := rival.TryLock(t.Context(), "request")
	if err != nil {
		t.Fatalf("the lock is not free: %v", err)
	}
	unlock(t, next)
}

func unlock(t *testing.T, lease *dlock.Lease) {
	t.Helper()
	if err := lease.Unlock(context.Background()); err != nil {
		t.Errorf("Unlock(%q): %v", lease.Name(), err)
	}
}

// wait lets time pass, which is what is tested.
func wait(t *testing.T, d time.Duration) {
	t.Helper()
	select {
	case <-time.After(d):
	case <-t.Context().Done():
		t.Fatal("the test ended")
	}
}

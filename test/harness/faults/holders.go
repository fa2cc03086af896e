package faults

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/test/harness/await"
	"github.com/dlock-go/dlock/test/harness/history"
)

// Leases are the faults of the clients of a store. Every store with leases must
// survive them.
var Leases = []Fault{
	{"SIGKILL of the holder", killHolder},
	{"SIGSTOP of the holder for three TTLs", pauseHolder},
	{"SIGSTOP inside Do for three TTLs", pauseInsideDo},
	{"SIGSTOP between check and write", pauseBetweenCheckAndWrite},
	{"cancelled waiters", cancelWaiters},
	{"unlock with a cancelled context", unlockCancelled},
}

// Fair are the faults of fair waiters, for stores with Traits.Fair.
var Fair = []Fault{
	{"a fair waiter that never comes back", deadFairWaiter},
	{"a fair waiter that gives up before others", cancelQueued},
}

// killHolder checks that the next waiter gets the lock within the TTL, with a
// larger token.
func killHolder(t *testing.T, r rig) { r.killHolder(t, r.TTL, r.TTL+r.late(t)) }

// killHolder kills the holder of a lock with that TTL, which must be free within limit.
func (r rig) killHolder(t *testing.T, ttl, limit time.Duration) {
	t.Helper()
	holder, contender := r.agent(t), r.client(t)
	token := holder.mustLock("killed", ttl)
	r.mustBeHeld(t, "killed", "another process has it")
	holder.Kill()
	start := time.Now()
	lease := r.lock(t, contender, "killed")
	inTime(t, start, limit, "the lock of the dead holder was free")
	rises(t, lease.Token(), token)
	unlock(t, lease)
}

// pauseHolder checks that another client gets the lock while the holder is
// paused. When the holder goes on, its first check finds the loss, its write is
// rejected, and its unlock does not affect the lock of the new holder.
func pauseHolder(t *testing.T, r rig) {
	resource := new(fenced)
	holder, contender := r.agent(t), r.client(t)
	token := holder.mustLock("paused", r.TTL)
	resource.accepts(t, token)
	holder.send(order{Do: "poll"}) // checks its lease all the time
	holder.pause()
	lease := r.lock(t, contender, "paused", dlock.WithTTL(5*r.TTL)) // a busy machine may renew it late
	granted := history.Now()
	resource.accepts(t, lease.Token())
	wait(t, 2*r.TTL)
	holder.resume()
	holder.receive().mustEndBefore(t, granted)
	resource.rejects(t, holder.do(order{Do: "write"}).Token)
	holder.unlockLost()
	r.mustBeHeld(t, "paused", "the late Unlock is for an earlier grant")
	stillTrusted(t, lease)
	unlock(t, lease)
}

// pauseInsideDo checks that the context inside Do ends like that of a lease.
func pauseInsideDo(t *testing.T, r rig) {
	holder, contender := r.agent(t), r.client(t)
	holder.must(order{Do: "do", Name: "inside", TTL: r.TTL})
	holder.pause()
	lease := r.lock(t, contender, "inside", dlock.WithTTL(5*r.TTL))
	wait(t, 2*r.TTL)
	holder.send(order{Do: "check"})
	holder.resume()
	if a := holder.receive(); a.Err != "cancelled" {
		t.Errorf("after three TTLs the context inside Do reports %q", a.Err)
	}
	unlock(t, lease)
}

// pauseBetweenCheckAndWrite checks that the token lets the resource reject a
// write after a pause. No lock can prevent that two holders act here.
func pauseBetweenCheckAndWrite(t *testing.T, r rig) {
	resource := new(fenced)
	holder, contender := r.agent(t), r.client(t)
	token := holder.mustLock("fenced", r.TTL)
	if checked := holder.do(order{Do: "check"}); checked.Err != "" || !resource.write(token) {
		t.Fatalf("the write of the holder was rejected: %+v", checked)
	}
	holder.pause() // after its check, before its write
	holder.send(order{Do: "write"})
	lease := r.lock(t, contender, "fenced")
	resource.accepts(t, lease.Token())
	holder.resume()
	resource.rejects(t, holder.receive().Token)
	resource.accepts(t, lease.Token())
	unlock(t, lease)
}

// deadFairWaiter checks that the next waiter gets the lock when the place of a
// dead waiter has expired.
func deadFairWaiter(t *testing.T, r rig) {
	c, contender := r.client(t), r.client(t)
	lease := r.lock(t, c, "queue", dlock.WithFair())
	dead := driver.Request{Name: "queue", Owner: driver.NewOwner(), TTL: r.TTL, Fair: true, Queue: true}
	if _, err := r.open(t).Acquire(t.Context(), dead); !errors.Is(err, dlock.ErrHeld) {
		t.Fatalf("a fair attempt: %v", err)
	}
	unlock(t, lease)
	start := time.Now()
	next := r.lock(t, contender, "queue", dlock.WithFair())
	inTime(t, start, r.TTL+r.late(t), "the waiter behind a dead one got the lock")
	unlock(t, next)
}

// cancelQueued checks that the waiter behind a cancelled waiter gets the lock as
// soon as it is free.
func cancelQueued(t *testing.T, r rig) {
	r.TTL = limit // a queue that waits for the expiry of the place advances too late
	holder, store := r.client(t), r.open(t)
	lease := r.lockWithRetry(t, holder, "left", dlock.WithFair())
	quitter, cancel := context.WithCancel(t.Context())
	gaveUp := r.lockAsync(quitter, r.client(t), "left", dlock.WithFair())
	r.awaitWaiters(t, store, "left", 1)
	behind := r.lockAsync(t.Context(), r.client(t), "left", dlock.WithFair())
	r.awaitWaiters(t, store, "left", 2)
	cancel()
	if err := await.Event(t, gaveUp, "the end of the cancelled wait").err; !errors.Is(err, context.Canceled) {
		t.Errorf("Lock: %v; want context.Canceled", err)
	}
	r.awaitWaiters(t, store, "left", 1)
	unlock(t, lease)
	start := time.Now()
	next := served(t, behind)
	inTime(t, start, slack, "the queue advanced")
	unlock(t, next)
}

// awaitWaiters waits until the lock has that many waiters.
func (r rig) awaitWaiters(t testing.TB, store driver.Store, name string, want int) {
	t.Helper()
	lister, ok := store.(driver.Lister)
	if !ok {
		t.Fatal("the store implements no Lister")
	}
	await.Until(t, fmt.Sprintf("%q has %d waiters", name, want), func() bool {
		got := 0
		for info, err := range lister.List(t.Context(), name) {
			if err != nil {
				t.Fatal(err)
			}
			got = info.Waiters
		}
		return got == want
	})
}

// cancelWaiters checks that cancelled waiters return at once and leave nothing
// behind.
func cancelWaiters(t *testing.T, r rig) {
	holder, waiter := r.client(t), r.client(t)
	lease := r.lockWithRetry(t, holder, "cancelled")
	modes := [][]dlock.Option{nil}
	if waiter.Traits().Fair {
		modes = append(modes, []dlock.Option{dlock.WithFair()})
	}
	for _, opts := range modes {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(r.TTL/10, cancel)
		start := time.Now()
		if _, err := waiter.Lock(ctx, "cancelled", opts...); !errors.Is(err, context.Canceled) {
			t.Errorf("Lock: %v; want context.Canceled", err)
		}
		inTime(t, start, r.TTL/10+slack, "a cancelled wait ended")
	}
	unlock(t, lease)
	for _, opts := range modes { // the waiters have left the queue, or are about to
		next, err := holder.Lock(t.Context(), "cancelled", append(opts, dlock.WithTTL(r.TTL), dlock.WithWait(r.TTL*3/4))...)
		if err != nil {
			t.Fatalf("Lock after the waiters gave up: %v", err)
		}
		unlock(t, next)
	}
}

// unlockCancelled checks that the lock is free although the context of Unlock was
// cancelled.
func unlockCancelled(t *testing.T, r rig) {
	c, contender := r.client(t), r.client(t)
	unlock(t, r.lockWithRetry(t, contender, warmUpName()))
	lease := r.lockWithRetry(t, c, "request")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := lease.Unlock(ctx); err != nil {
		t.Errorf("Unlock: %v", err)
	}
	next, err := contender.TryLock(t.Context(), "request")
	if err != nil {
		t.Fatalf("the lock is not free: %v", err)
	}
	unlock(t, next)
}

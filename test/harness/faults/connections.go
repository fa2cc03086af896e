package faults

import (
	"errors"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/test/harness/await"
)

// Connections are the faults of connections that the server ends. They need
// KillConnections and locks that do not depend on a connection. Other tests on
// the same server notice them.
var Connections = []Fault{
	{"connections are killed while a lock is held", killConnectionsOfHolder},
	{"connections are killed while a client waits", killConnectionsOfWaiter},
}

// Bound are the faults of a store whose locks are bound to a connection. They
// replace Leases, and need KillConnections and Probe. Other tests on the same
// server notice them.
var Bound = []Fault{
	{"SIGKILL of a holder with a connection", killBoundHolder},
	{"SIGSTOP of a holder with a connection", pauseBoundHolder},
	{"the connection of a holder is killed", killBoundConnection},
	{"connections are killed while a client waits", killConnectionsOfBoundWaiter},
	{"cancelled waiters", cancelWaiters},
	{"unlock with a cancelled context", unlockCancelled},
}

func (r rig) killConnections(t testing.TB) {
	t.Helper()
	if r.KillConnections == nil {
		t.Fatal("the rig cannot kill connections")
	}
	if err := r.KillConnections(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// renewingClient returns a client, and a function that waits for the next
// successful renewal of its lock.
func (r rig) renewingClient(t testing.TB) (c *dlock.Client, renewed func()) {
	t.Helper()
	outcomes := make(chan error, 1000)
	c = r.clientWith(t, &dlock.Options{Hooks: dlock.Hooks{
		Renewed: func(e dlock.Event) { outcomes <- e.Err },
		Lost:    func(e dlock.Event) { t.Errorf("lost: %v", e.Err) },
	}})
	return c, func() {
		t.Helper()
		for len(outcomes) > 0 { // drops earlier renewals
			<-outcomes
		}
		for await.Event(t, outcomes, "a renewal") != nil {
		}
	}
}

// killConnectionsOfHolder checks that the holder keeps its lock over another
// connection.
func killConnectionsOfHolder(t *testing.T, r rig) {
	r.TTL *= 2 // a busy machine may be late
	c, renewed := r.renewingClient(t)
	lease := r.lock(t, c, "kept")
	for start := time.Now(); time.Since(start) < r.TTL+r.TTL/2; { // longer than the first grant
		r.killConnections(t)
		renewed()
	}
	stillTrusted(t, lease)
	r.mustHaveToken(t, r.mustBeHeld(t, "kept", "it does not depend on a connection"), lease.Token())
	unlock(t, lease)
	rises(t, r.mustBeFree(t, "kept", "it was unlocked"), lease.Token())
}

// killConnectionsOfWaiter checks that the waiter goes on waiting, and gets the
// lock within a TTL.
func killConnectionsOfWaiter(t *testing.T, r rig) {
	r.TTL *= 2 // a busy machine may be late
	c, renewed := r.renewingClient(t)
	lease := r.lock(t, c, "awaited")
	later := r.lockAsync(t.Context(), r.client(t), "awaited")
	wait(t, r.TTL/4) // the client begins to wait
	r.killConnections(t)
	renewed()
	unlock(t, lease)
	unlocked := time.Now()
	next := served(t, later)
	inTime(t, unlocked, r.TTL+slack, "the waiter got the lock")
	unlock(t, next)
}

// killBoundHolder checks that the lock is free as soon as the server notices the
// end of the process, without any TTL.
func killBoundHolder(t *testing.T, r rig) { r.killHolder(t, 10*limit, r.TTL+slack) }

// pauseBoundHolder checks that the lock stays held until the paused holder goes
// on, finds that its trust deadline has passed, and releases the lock.
func pauseBoundHolder(t *testing.T, r rig) {
	holder, store := r.agent(t), r.open(t)
	token := holder.mustLock("bound and paused", r.TTL)
	holder.send(order{Do: "poll"})
	holder.pause()
	wait(t, 2*r.TTL)
	r.mustBeHeld(t, "bound and paused", "the holder still has its connection")
	holder.resume()
	grant, granted := r.acquireWhenFree(t, store, "bound and paused")
	holder.receive().mustEndBefore(t, granted)
	rises(t, grant.Token, token)
	holder.unlockLost()
	release(t, store, grant)
}

// killBoundConnection checks that the lock is free, and that the holder notices
// soon. A contender may get the lock a little earlier; the token protects the
// resource.
func killBoundConnection(t *testing.T, r rig) {
	resource := new(fenced)
	lease := r.lock(t, r.client(t), "severed", dlock.WithTTL(10*limit))
	resource.accepts(t, lease.Token())
	r.killConnections(t)
	killed := time.Now()
	contender := r.lockWithRetry(t, r.client(t), "severed")
	rises(t, contender.Token(), lease.Token())
	resource.accepts(t, contender.Token())
	await.Event(t, lease.Context().Done(), "the end of the lease")
	inTime(t, killed, r.Probe+slack, "the loss was noticed")
	resource.rejects(t, lease.Token())
	unlockLost(t, lease)
	r.mustBeHeld(t, "severed", "the second holder holds it")
	unlock(t, contender)
}

// killConnectionsOfBoundWaiter checks that the holder loses the lock and the
// waiter gets it. The waiter may get it before its own connection is killed, a
// moment after that of the holder, and lose it again.
func killConnectionsOfBoundWaiter(t *testing.T, r rig) {
	lease := r.lock(t, r.client(t), "severed and awaited", dlock.WithTTL(10*limit))
	later := r.lockAsync(t.Context(), r.client(t), "severed and awaited")
	wait(t, r.TTL/4) // the client begins to wait
	r.killConnections(t)
	next := await.Event(t, later, "the lock")
	if next.err != nil && !errors.Is(next.err, dlock.ErrUnreachable) {
		t.Fatalf("Lock while connections are killed: %v", next.err)
	}
	if next.err == nil {
		rises(t, next.lease.Token(), lease.Token())
		if err := next.lease.Unlock(t.Context()); err != nil && !errors.Is(err, dlock.ErrNotHeld) {
			t.Errorf("Unlock by the waiter: %v", err)
		}
	}
	await.Event(t, lease.Context().Done(), "the end of the lease")
	unlockLost(t, lease)
	unlock(t, r.lock(t, r.client(t), "severed and awaited")) // the server may not have noticed yet
}

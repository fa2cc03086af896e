package faults

import (
	"errors"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
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
		for await(t, outcomes, "a renewal") != nil {
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
	if err := lease.Context().Err(); err != nil {
		t.Errorf("the lease has ended with its connection: %v", err)
	}
	if held := r.mustBeHeld(t, "kept", "it does not depend on a connection"); held.Token != 0 && held.Token != lease.Token() {
		t.Errorf("the lock has token %d now, and had %d", held.Token, lease.Token())
	}
	unlock(t, lease)
	if token := r.mustBeFree(t, "kept", "it was unlocked"); token <= lease.Token() {
		t.Errorf("token %d after %d", token, lease.Token())
	}
}

// killConnectionsOfWaiter checks that the waiter goes on waiting, and gets the
// lock within a TTL.
func killConnectionsOfWaiter(t *testing.T, r rig) {
	r.TTL *= 2 // a busy machine may be late
	c, renewed := r.renewingClient(t)
	lease := r.lock(t, c, "awaited")
	served := r.lockAsync(t, "awaited", r.TTL)
	wait(t, r.TTL/4) // the client begins to wait
	r.killConnections(t)
	renewed()
	unlock(t, lease)
	unlocked := time.Now()
	next := await(t, served, "the lock")
	if next.err != nil {
		t.Fatalf("Lock while connections are killed: %v", next.err)
	}
	if took := time.Since(unlocked); took > r.TTL+slack {
		t.Errorf("the waiter got the lock %v after it was free; the TTL is %v", took, r.TTL)
	}
	unlock(t, next.lease)
}

// lockAsync requests the lock from a client of its own.
func (r rig) lockAsync(t testing.TB, name string, ttl time.Duration) <-chan attempt {
	t.Helper()
	c := r.client(t)
	done := make(chan attempt, 1)
	go func() {
		lease, err := c.Lock(t.Context(), name, dlock.WithTTL(ttl))
		done <- attempt{lease, err}
	}()
	return done
}

// killBoundHolder checks that the lock is free as soon as the server notices the
// end of the process, without any TTL.
func killBoundHolder(t *testing.T, r rig) {
	holder, contender := r.agent(t), r.client(t)
	const ttl = 10 * limit
	token := holder.mustLock("bound", ttl)
	r.mustBeHeld(t, "bound", "another process has it")
	holder.Kill()
	start := time.Now()
	lease := r.lock(t, contender, "bound")
	if took := time.Since(start); took > r.TTL+slack {
		t.Errorf("free %v after the holder died", took)
	}
	if lease.Token() <= token {
		t.Errorf("token %d after %d", lease.Token(), token)
	}
	unlock(t, lease)
}

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
	if grant.Token <= token {
		t.Errorf("token %d after %d", grant.Token, token)
	}
	if a := holder.do(order{Do: "unlock"}); a.Err != "not held" {
		t.Errorf("Unlock of the lost lock returned %q", a.Err)
	}
	if err := store.Release(t.Context(), grant); err != nil {
		t.Errorf("Release by the new holder: %v", err)
	}
}

// killBoundConnection checks that the lock is free, and that the holder notices
// soon. A contender may get the lock a little earlier; the token protects the
// resource.
func killBoundConnection(t *testing.T, r rig) {
	resource := new(fenced)
	lease := r.lock(t, r.client(t), "severed", dlock.WithTTL(10*limit))
	if !resource.write(lease.Token()) {
		t.Fatal("the write of the holder was rejected")
	}
	r.killConnections(t)
	killed := time.Now()
	contender := r.lockWithRetry(t, r.client(t), "severed")
	if contender.Token() <= lease.Token() || !resource.write(contender.Token()) {
		t.Errorf("token %d after %d", contender.Token(), lease.Token())
	}
	await(t, lease.Context().Done(), "the end of the lease")
	if took := time.Since(killed); took > r.Probe+slack {
		t.Errorf("the loss was noticed after %v; the probe comes every %v", took, r.Probe)
	}
	if resource.write(lease.Token()) {
		t.Errorf("a stale write with token %d was accepted after token %d", lease.Token(), contender.Token())
	}
	unlockLost(t, lease)
	r.mustBeHeld(t, "severed", "the second holder holds it")
	unlock(t, contender)
}

// killConnectionsOfBoundWaiter checks that the holder loses the lock and the
// waiter gets it. The waiter may get it before its own connection is killed, a
// moment after that of the holder, and lose it again.
func killConnectionsOfBoundWaiter(t *testing.T, r rig) {
	lease := r.lock(t, r.client(t), "severed and awaited", dlock.WithTTL(10*limit))
	served := r.lockAsync(t, "severed and awaited", r.TTL)
	wait(t, r.TTL/4) // the client begins to wait
	r.killConnections(t)
	next := await(t, served, "the lock")
	if next.err != nil && !errors.Is(next.err, dlock.ErrUnreachable) {
		t.Fatalf("Lock while connections are killed: %v", next.err)
	}
	if next.err == nil {
		if next.lease.Token() <= lease.Token() {
			t.Errorf("token %d after %d", next.lease.Token(), lease.Token())
		}
		if err := next.lease.Unlock(t.Context()); err != nil && !errors.Is(err, dlock.ErrNotHeld) {
			t.Errorf("Unlock by the waiter: %v", err)
		}
	}
	await(t, lease.Context().Done(), "the end of the lease")
	unlockLost(t, lease)
	unlock(t, r.lock(t, r.client(t), "severed and awaited")) // the server may not have noticed yet
}

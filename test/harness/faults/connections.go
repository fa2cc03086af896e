package faults

import (
	"errors"
	"syscall"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
)

// Connections are the faults of connections that the server ends, for rigs with
// KillConnections whose locks do not depend on one. Others on the same server
// notice.
var Connections = []Fault{
	{"connections are killed while a lock is held", killConnectionsOfHolder},
	{"connections are killed while somebody waits", killConnectionsOfWaiter},
}

// Bound are the faults of a store whose locks live as long as a connection, for
// rigs with KillConnections and Probe. They take the place of Leases. Others on
// the same server notice.
var Bound = []Fault{
	{"SIGKILL of a holder with a connection", killBoundHolder},
	{"SIGSTOP of a holder with a connection", pauseBoundHolder},
	{"the connection of a holder is killed", killBoundConnection},
	{"connections are killed while somebody waits", killConnectionsOfBoundWaiter},
	{"cancelled waiters", cancelWaiters},
	{"unlock with a cancelled context", unlockCancelled},
}

func (r Rig) killConnections(t testing.TB) {
	t.Helper()
	if r.KillConnections == nil {
		t.Fatal("the rig cannot kill connections")
	}
	if err := r.KillConnections(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// keeper is a client that tells when it has renewed its lock.
func (r Rig) keeper(t testing.TB) (c *dlock.Client, renewed func()) {
	t.Helper()
	outcomes := make(chan error, 1000)
	c = r.clientWith(t, &dlock.Options{Hooks: dlock.Hooks{
		Renewed: func(e dlock.Event) { outcomes <- e.Err },
		Lost:    func(e dlock.Event) { t.Errorf("lost: %v", e.Err) },
	}})
	return c, func() {
		t.Helper()
		for len(outcomes) > 0 { // of before
			<-outcomes
		}
		for happens(t, outcomes, "a renewal") != nil {
		}
	}
}

// killConnectionsOfHolder: the lock is kept, over another connection.
func killConnectionsOfHolder(t *testing.T, r Rig) {
	c, renewed := r.keeper(t)
	lease := r.lock(t, c, "kept")
	for start := time.Now(); time.Since(start) < r.TTL+r.TTL/2; { // longer than the first grant lasts
		r.killConnections(t)
		renewed()
	}
	if err := lease.Context().Err(); err != nil {
		t.Errorf("the lease has ended with its connection: %v", err)
	}
	if held := r.refuses(t, "kept", "it does not depend on a connection"); held.Token != 0 && held.Token != lease.Token() {
		t.Errorf("the lock has token %d now, and had %d", held.Token, lease.Token())
	}
	unlock(t, lease)
	if token := r.grants(t, "kept", "it was unlocked"); token <= lease.Token() {
		t.Errorf("token %d after %d", token, lease.Token())
	}
}

// killConnectionsOfWaiter: it goes on waiting, and is served within a TTL.
func killConnectionsOfWaiter(t *testing.T, r Rig) {
	c, renewed := r.keeper(t)
	lease := r.lock(t, c, "awaited")
	served := r.lockUnfairLater(t, "awaited", r.TTL)
	wait(t, r.TTL/4) // in which it begins to wait
	r.killConnections(t)
	renewed()
	unlock(t, lease)
	unlocked := time.Now()
	next := happens(t, served, "the lock")
	if next.err != nil {
		t.Fatalf("Lock while connections are killed: %v", next.err)
	}
	if took := time.Since(unlocked); took > r.TTL+slack {
		t.Errorf("the waiter got the lock %v after it was free; the TTL is %v", took, r.TTL)
	}
	unlock(t, next.lease)
}

// lockUnfairLater asks for the lock from a client of its own.
func (r Rig) lockUnfairLater(t testing.TB, name string, ttl time.Duration) <-chan attempt {
	t.Helper()
	c := r.client(t)
	done := make(chan attempt, 1)
	go func() {
		lease, err := c.Lock(t.Context(), name, dlock.WithTTL(ttl))
		done <- attempt{lease, err}
	}()
	return done
}

// killBoundHolder: the server notices the end of the process, without any TTL.
func killBoundHolder(t *testing.T, r Rig) {
	holder, rival := r.puppet(t), r.client(t)
	const ttl = 10 * limit
	token := holder.mustLock("bound", ttl)
	r.refuses(t, "bound", "another process has it")
	holder.kill()
	start := time.Now()
	lease := r.lock(t, rival, "bound")
	if took := time.Since(start); took > r.TTL+slack {
		t.Errorf("free %v after the holder died", took)
	}
	if lease.Token() <= token {
		t.Errorf("token %d after %d", lease.Token(), token)
	}
	unlock(t, lease)
}

// pauseBoundHolder: nobody gets the lock before the holder goes on, finds that its
// time is over, and gives it up.
func pauseBoundHolder(t *testing.T, r Rig) {
	holder, store := r.puppet(t), r.open(t)
	token := holder.mustLock("bound and paused", r.TTL)
	holder.send(order{Do: "believe"})
	holder.pause()
	wait(t, 2*r.TTL)
	r.refuses(t, "bound and paused", "the holder has its connection still")
	holder.signal(syscall.SIGCONT)
	grant, granted := r.seize(t, store, "bound and paused")
	holder.hear().mustEndBefore(t, granted)
	if grant.Token <= token {
		t.Errorf("token %d after %d", grant.Token, token)
	}
	if a := holder.do(order{Do: "unlock"}); a.Err != "not held" {
		t.Errorf("Unlock of the lost lock says %q", a.Err)
	}
	if err := store.Release(t.Context(), grant); err != nil {
		t.Errorf("Release by the new holder: %v", err)
	}
}

// killBoundConnection: the lock is gone, and the holder knows soon. A rival may
// have it a little earlier, which is what the token is for.
func killBoundConnection(t *testing.T, r Rig) {
	resource := new(fenced)
	lease := r.lock(t, r.client(t), "severed", dlock.WithTTL(10*limit))
	if !resource.write(lease.Token()) {
		t.Fatal("the holder may not write")
	}
	r.killConnections(t)
	killed := time.Now()
	rival := r.lockAnyhow(t, r.client(t), "severed")
	if rival.Token() <= lease.Token() || !resource.write(rival.Token()) {
		t.Errorf("token %d after %d", rival.Token(), lease.Token())
	}
	happens(t, lease.Context().Done(), "the end of the lease")
	if took := time.Since(killed); took > r.Probe+slack {
		t.Errorf("the loss was noticed after %v; the probe comes every %v", took, r.Probe)
	}
	if resource.write(lease.Token()) {
		t.Errorf("a stale write with token %d got through after token %d", lease.Token(), rival.Token())
	}
	unlockLost(t, lease)
	r.refuses(t, "severed", "the second holder has it")
	unlock(t, rival)
}

// killConnectionsOfBoundWaiter: the holder is lost, and the waiter is served. It may
// be served before its own connection is killed, which comes a moment later than
// that of the holder, and lose the lock again.
func killConnectionsOfBoundWaiter(t *testing.T, r Rig) {
	lease := r.lock(t, r.client(t), "severed and awaited", dlock.WithTTL(10*limit))
	served := r.lockUnfairLater(t, "severed and awaited", r.TTL)
	wait(t, r.TTL/4) // in which it begins to wait
	r.killConnections(t)
	next := happens(t, served, "the lock")
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
	happens(t, lease.Context().Done(), "the end of the lease")
	unlockLost(t, lease)
	unlock(t, r.lock(t, r.client(t), "severed and awaited")) // the server may not have noticed yet
}

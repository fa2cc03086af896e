package faults

import (
	"cmp"
	"errors"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/test/harness/await"
	"github.com/dlock-go/dlock/test/harness/proxy"
)

// lateUnlock checks that a late unlock does not affect the lock of the next
// holder.
func lateUnlock(t *testing.T, r rig) {
	through, p := r.proxied(t)
	c, store := through.clientWith(t, r.shortTimeout()), r.open(t)
	through.warm(t, c)
	// No renewal precedes the unlock. A busy machine may exceed the short timeout.
	lease := r.lockWithRetry(t, c, "late-unlock", dlock.WithFixedTTL(r.TTL))
	held := p.OnRequest(mentions("late-unlock"), func(*proxy.Conn) { p.Hold() })
	if err := lease.Unlock(t.Context()); !errors.Is(err, dlock.ErrUnreachable) {
		t.Errorf("Unlock without an answer: %v", err)
	}
	await.Event(t, held, "the unlock")
	next := r
	next.TTL = limit // nobody renews it
	grant, _ := next.acquireWhenFree(t, store, "late-unlock")
	p.Deliver()
	r.settle(t, p, "unlock")
	r.mustBeHeld(t, "late-unlock", "the late Unlock is for an earlier grant")
	release(t, store, grant)
}

// settle waits until the server has carried out a late request.
func (r rig) settle(t testing.TB, p *proxy.Proxy, what string) {
	t.Helper()
	if !p.Arrive(limit) {
		t.Fatalf("the late %s does not arrive", what)
	}
	if !p.Settle(cmp.Or(r.Unanswered, limit)) && r.Unanswered == 0 {
		t.Fatalf("the late %s is not answered", what)
	}
}

// lateRenewal checks that a late renewal extends only the grant of its own owner. A machine that
// was too slow to ask before the TTL has ended gets another try, with twice the TTL.
func lateRenewal(t *testing.T, r rig) {
	const tries = 3
	for range tries {
		if r.renewsLate(t) {
			return
		}
		r.TTL *= 2
	}
	t.Errorf("in %d tries a late renewal extended the lock of another owner, or calls took longer than a quarter of %v", tries, r.TTL/2)
}

// renewsLate reports whether the lock ended in time, and the machine was fast enough to tell.
func (r rig) renewsLate(t *testing.T) (inTime bool) {
	lease, p := r.holdRenewal(t, "late-renewal")
	store := r.open(t)
	asker := r.open(t)
	grant, start, _ := r.acquireTimed(t, store, "late-renewal")
	unlockLost(t, lease)
	wait(t, r.TTL*3/4)
	p.Deliver()
	r.settle(t, p, "renewal")
	early, err := asker.Acquire(t.Context(), driver.Request{Name: "late-renewal", Owner: driver.NewOwner(), TTL: r.TTL})
	held, refused := errors.AsType[*driver.HeldError](err)
	switch {
	case err == nil && time.Since(start) >= r.TTL*15/16: // the machine was slow; clocks may differ a little
		if err := asker.Release(t.Context(), early); err != nil {
			t.Errorf("Release: %v", err)
		}
		return false
	case !refused:
		t.Fatalf("Acquire: %v, token %d; want that it is held: the TTL of its holder has not ended", err, early.Token)
	case held.Token != 0 && held.Token != grant.Token:
		t.Errorf("the lock has token %d now, and had %d", held.Token, grant.Token)
	}
	next, _ := r.acquireWhenFree(t, store, "late-renewal")
	took := time.Since(start)
	release(t, store, next)
	return took <= r.TTL+r.TTL/2 // otherwise the late renewal may have extended the lock
}

// lateRenewalOfFree checks that a late renewal does not create a lock.
func lateRenewalOfFree(t *testing.T, r rig) {
	lease, p := r.holdRenewal(t, "free-again")
	store := r.open(t)
	grant, _ := r.acquireWhenFree(t, store, "free-again")
	release(t, store, grant)
	p.Deliver()
	r.settle(t, p, "renewal")
	r.mustBeFree(t, "free-again", "a renewal creates nothing")
	unlockLost(t, lease)
}

// holdRenewal returns a lease that has ended because the proxy holds its renewal.
func (r rig) holdRenewal(t *testing.T, name string) (*dlock.Lease, *proxy.Proxy) {
	t.Helper()
	through, p := r.proxied(t)
	c := through.client(t)
	through.warm(t, c)
	lease := r.lock(t, c, name)
	await.Event(t, p.OnRequest(mentions(name), func(*proxy.Conn) { p.Hold() }), "the renewal")
	start := time.Now()
	await.Event(t, lease.Context().Done(), "the end of the lease")
	inTime(t, start, r.TTL+r.late(t), "the lease ended whose renewal was held")
	return lease, p
}

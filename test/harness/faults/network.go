package faults

import (
	"errors"
	"syscall"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/test/harness/proxy"
)

// Network are the faults of the network between a client and its server, for rigs
// with Addr and At.
var Network = []Fault{
	{"SIGSTOP while the acquisition is answered", pauseDuringReply},
	{"a network that holds everything for longer than the TTL", holdEverything},
	{"a lost answer to an acquisition", loseAcquired},
	{"a lost answer to an acquisition after a wait", loseAcquiredWaiting},
	{"a lost answer to an acquisition by a process that dies", loseAcquiredAndDie},
	{"a lost answer to a renewal", loseRenewed},
	{"a reset instead of an answer to a renewal", resetRenewed},
	{"an unlock that arrives when another one has the lock", lateUnlock},
	{"a renewal that arrives when another one has the lock", lateRenewal},
	{"a renewal that arrives when nobody has the lock", lateRenewalOfNothing},
	{"a server that accepts connections and hangs", hangingServer},
}

// warmUps is how many calls are made before those that count: the first ones
// are different where there are connections to open, scripts to load, statements
// to prepare, or clocks to learn.
const warmUps = 5

// warmUpName is a name that no other is part of.
func warmUpName() string { return "warm-up " + driver.NewOwner().Hex() }

// askerNote is the note of an attempt, by which the request is found that takes the
// lock. Some stores read before, and the first time they make room for the name;
// hence nothing is lost of a name that was never locked.
const askerNote = "note-of-who-asks"

// warm makes the first calls.
func (r Rig) warm(t testing.TB, c *dlock.Client) {
	t.Helper()
	name := warmUpName()
	for range warmUps {
		unlock(t, r.lockAnyhow(t, c, name))
	}
	r.warmStore(t, r.open(t))
}

func (r Rig) warmStore(t testing.TB, store driver.Store) {
	t.Helper()
	name := warmUpName()
	for range warmUps {
		grant, _ := r.seize(t, store, name)
		if errs := store.Renew(t.Context(), []driver.Grant{grant}); errs != nil {
			t.Fatalf("Renew: %v", errs[0])
		}
		if err := store.Release(t.Context(), grant); err != nil {
			t.Fatalf("Release: %v", err)
		}
	}
}

// warm makes the first calls of another process.
func (p *puppet) warm(ttl time.Duration) {
	p.t.Helper()
	name := warmUpName()
	for range warmUps {
		p.mustLock(name, ttl)
		p.must(order{Do: "unlock"})
	}
}

// pauseDuringReply: what Lock was granted has expired when it hears of it, and is
// no success. It fails, or it waits like anybody else.
func pauseDuringReply(t *testing.T, r Rig) {
	through, p := r.proxied(t)
	puppet, rival := through.puppet(t), r.client(t)
	puppet.warm(r.TTL)
	r.grants(t, "reply", "nobody has it yet")

	asked := p.OnRequest(mentions(askerNote), func(*proxy.Conn) { p.Hold(proxy.Replies) })
	puppet.send(order{Do: "lock", Name: "reply", TTL: r.TTL, Note: askerNote})
	happens(t, asked, "the request")
	if !p.Held(proxy.Replies, limit) {
		t.Fatal("the server does not answer")
	}
	r.refuses(t, "reply", "it was granted to the process that does not know it yet")
	puppet.pause()
	p.Deliver()
	lease := r.lock(t, rival, "reply")
	puppet.signal(syscall.SIGCONT)
	wait(t, r.TTL/2) // in which it looks at what it got
	r.refuses(t, "reply", "the other one has it")
	if err := lease.Context().Err(); err != nil {
		t.Errorf("the other's lease has ended: %v", err)
	}
	unlock(t, lease)
	switch a := puppet.hear(); {
	case a.Err == "" && a.Token <= lease.Token():
		t.Errorf("Lock returned token %d, of a grant that had expired before token %d", a.Token, lease.Token())
	case a.Err == "":
		puppet.must(order{Do: "unlock"})
	case a.Err != "unreachable":
		t.Errorf("Lock says %q; want that the store did not answer in time", a.Err)
	}
	r.grants(t, "reply", "its last holder has unlocked it")
}

// holdEverything: the holder stops believing before another one is granted.
func holdEverything(t *testing.T, r Rig) {
	through, p := r.proxied(t)
	holder, store := through.puppet(t), r.open(t)
	token := holder.mustLock("cut-off", r.TTL)
	holder.send(order{Do: "believe"})
	p.Hold()
	grant, granted := r.seize(t, store, "cut-off")
	holder.hear().mustEndBefore(t, granted)
	if grant.Token <= token {
		t.Errorf("token %d after %d", grant.Token, token)
	}
	p.Deliver() // whatever it has sent meanwhile
	if a := holder.do(order{Do: "unlock"}); a.Err != "not held" {
		t.Errorf("Unlock of the lost lock says %q", a.Err)
	}
	if errs := store.Renew(t.Context(), []driver.Grant{grant}); errs != nil {
		t.Errorf("the other's lock is gone: %v", errs[0])
	}
}

// impatient is for clients that are to notice soon that an answer is lost.
func (r Rig) impatient() *dlock.Options {
	return &dlock.Options{RequestTimeout: r.TTL / 3}
}

// loseAcquired: Lock says that the outcome is unknown, and undoes it, unless the store
// itself asks again in time. Asking again with the same owner finds what is there
// already.
func loseAcquired(t *testing.T, r Rig) {
	through, p := r.proxied(t)
	c, store := through.clientWith(t, r.impatient()), through.open(t)
	through.warm(t, c)
	through.warmStore(t, store)

	r.grants(t, "orphan", "nobody has it yet")
	lost := p.LoseReply(mentions(askerNote), false)
	switch lease, err := c.Lock(t.Context(), "orphan", dlock.WithTTL(10*r.TTL), dlock.WithNote(askerNote)); {
	case err == nil && r.AsksAgain:
		unlock(t, lease)
	case !errors.Is(err, dlock.ErrUnreachable):
		t.Fatalf("Lock without an answer: %v, %v", lease, err)
	}
	happens(t, lost, "the lost answer")
	start := time.Now()
	again := r.lockAnyhow(t, c, "orphan")
	if took := time.Since(start); took > r.TTL+r.late(t) {
		t.Errorf("the client waited %v for its own attempt of unknown outcome", took)
	}
	unlock(t, again)

	r.grants(t, "idempotent", "nobody has it yet")
	req := driver.Request{Name: "idempotent", Owner: driver.NewOwner(), TTL: r.TTL, Holder: driver.Holder{Note: askerNote}}
	lost = p.LoseReply(mentions(askerNote), true)
	if grant, err := store.Acquire(t.Context(), req); err == nil && !r.AsksAgain || errors.Is(err, driver.ErrHeld) {
		t.Fatalf("Acquire without an answer: %+v, %v", grant, err)
	}
	happens(t, lost, "the lost answer")
	held := r.refuses(t, "idempotent", "it was granted although nobody knows")
	grant, err := store.Acquire(t.Context(), req)
	if err != nil {
		t.Fatalf("the same owner asks again: %v", err)
	}
	// A token that nobody was told may be replaced by a larger one.
	if grant.Token < held.Token {
		t.Errorf("the second answer has token %d, the lost one had %d", grant.Token, held.Token)
	}
	if err := store.Release(t.Context(), grant); err != nil {
		t.Errorf("Release: %v", err)
	}
	r.grants(t, "idempotent", "one release is enough for two acquisitions by one owner")
}

// loseAcquiredWaiting: a waiter asks again, and finds that it has the lock.
func loseAcquiredWaiting(t *testing.T, r Rig) {
	through, p := r.proxied(t)
	c := through.clientWith(t, r.impatient())
	through.warm(t, c)
	first := r.lock(t, r.client(t), "waited-for")
	asked := p.OnRequest(mentions("waited-for"), func(*proxy.Conn) {})
	done := make(chan attempt, 1)
	go func() {
		lease, err := c.Lock(t.Context(), "waited-for", dlock.WithTTL(r.TTL), dlock.WithNote(askerNote))
		done <- attempt{lease, err}
	}()
	happens(t, asked, "the first attempt")
	wait(t, r.TTL/4) // in which it begins to wait
	p.Hold()         // what it asks from now on, it asks when the lock is free
	lost := p.LoseReply(mentions(askerNote), false)
	unlock(t, first)
	p.Deliver()
	happens(t, lost, "the lost answer")
	held := r.refuses(t, "waited-for", "the waiter has it and does not know")
	second := happens(t, done, "the lock")
	if second.err != nil {
		t.Fatalf("Lock after a lost answer: %v", second.err)
	}
	if got := second.lease.Token(); got <= first.Token() || got < held.Token {
		t.Errorf("token %d after %d, and after %d in the lost answer", got, first.Token(), held.Token)
	}
	unlock(t, second.lease)
	r.grants(t, "waited-for", "it was unlocked")
}

// loseAcquiredAndDie: what nobody knows of is free when its TTL is over.
func loseAcquiredAndDie(t *testing.T, r Rig) {
	through, p := r.proxied(t)
	puppet, rival := through.puppet(t), r.client(t)
	puppet.warm(r.TTL)
	r.grants(t, "last-words", "nobody has it yet")
	lost := p.LoseReply(mentions(askerNote), false)
	puppet.send(order{Do: "lock", Name: "last-words", TTL: r.TTL, Note: askerNote})
	happens(t, lost, "the lost answer")
	start := time.Now()
	r.refuses(t, "last-words", "it was granted although nobody knows")
	puppet.kill()
	unlock(t, r.lock(t, rival, "last-words"))
	if waited := time.Since(start); waited > r.TTL+r.late(t) {
		t.Errorf("free after %v; the TTL is %v", waited, r.TTL)
	}
}

// loseRenewed: the renewal is repeated, and nothing is lost.
func loseRenewed(t *testing.T, r Rig) { failRenewal(t, r, "renewed-in-silence", false) }

func resetRenewed(t *testing.T, r Rig) { failRenewal(t, r, "renewed-and-reset", true) }

func failRenewal(t *testing.T, r Rig, name string, reset bool) {
	through, p := r.proxied(t)
	through.warm(t, through.client(t))
	renewed := make(chan error, 100)
	c := through.clientWith(t, &dlock.Options{Hooks: dlock.Hooks{
		Renewed: func(e dlock.Event) { renewed <- e.Err },
		Lost:    func(e dlock.Event) { t.Errorf("lost: %v", e.Err) },
	}})
	lease := r.lock(t, c, name)
	token := lease.Token()
	lost := p.LoseReply(mentions(name), reset)
	happens(t, lost, "the lost answer")
	if err := happens(t, renewed, "the outcome of the renewal"); err == nil && !r.AsksAgain {
		t.Error("the renewal succeeded without an answer")
	}
	for happens(t, renewed, "another renewal") != nil {
	}
	wait(t, r.TTL) // longer than the grant would have lasted
	if err := lease.Context().Err(); err != nil {
		t.Errorf("the lease has ended: %v", err)
	}
	if held := r.refuses(t, name, "it was renewed"); held.Token != 0 && held.Token != token {
		t.Errorf("the lock has token %d now, and had %d", held.Token, token)
	}
	unlock(t, lease)
}

// lateUnlock: it leaves the other's lock alone.
func lateUnlock(t *testing.T, r Rig) {
	through, p := r.proxied(t)
	c, store := through.clientWith(t, r.impatient()), r.open(t)
	through.warm(t, c)
	lease := r.lock(t, c, "late-unlock", dlock.WithFixedTTL(r.TTL)) // no renewal goes before it
	held := p.OnRequest(mentions("late-unlock"), func(*proxy.Conn) { p.Hold() })
	if err := lease.Unlock(t.Context()); !errors.Is(err, dlock.ErrUnreachable) {
		t.Errorf("Unlock without an answer: %v", err)
	}
	happens(t, held, "the unlock")
	grant, _ := r.seize(t, store, "late-unlock")
	p.Deliver()
	if !p.Settle(limit) {
		t.Fatal("the late unlock is not answered")
	}
	r.refuses(t, "late-unlock", "the late Unlock is not for it")
	if err := store.Release(t.Context(), grant); err != nil {
		t.Errorf("Release by the new holder: %v", err)
	}
}

// lateRenewal: it extends nobody's lock but its own.
func lateRenewal(t *testing.T, r Rig) {
	lease, p := r.holdRenewal(t, "late-renewal")
	store := r.open(t)
	grant, _ := r.seize(t, store, "late-renewal")
	start := time.Now()
	unlockLost(t, lease)
	wait(t, r.TTL*3/4)
	p.Deliver()
	if !p.Settle(limit) {
		t.Fatal("the late renewal is not answered")
	}
	held := r.refuses(t, "late-renewal", "its holder's TTL is not over")
	if held.Token != 0 && held.Token != grant.Token {
		t.Errorf("the lock has token %d now, and had %d", held.Token, grant.Token)
	}
	next, _ := r.seize(t, store, "late-renewal")
	if took := time.Since(start); took > r.TTL+r.TTL/2 {
		t.Errorf("the lock expired %v after it was granted; the TTL is %v", took, r.TTL)
	}
	if err := store.Release(t.Context(), next); err != nil {
		t.Errorf("Release: %v", err)
	}
}

// lateRenewalOfNothing: it creates nothing.
func lateRenewalOfNothing(t *testing.T, r Rig) {
	lease, p := r.holdRenewal(t, "nobody's")
	store := r.open(t)
	grant, _ := r.seize(t, store, "nobody's")
	if err := store.Release(t.Context(), grant); err != nil {
		t.Fatalf("Release: %v", err)
	}
	p.Deliver()
	if !p.Settle(limit) {
		t.Fatal("the late renewal is not answered")
	}
	r.grants(t, "nobody's", "a renewal creates nothing")
	unlockLost(t, lease)
}

// holdRenewal returns a lease that has ended because its renewal is held.
func (r Rig) holdRenewal(t *testing.T, name string) (*dlock.Lease, *proxy.Proxy) {
	t.Helper()
	through, p := r.proxied(t)
	c := through.client(t)
	through.warm(t, c)
	lease := r.lock(t, c, name)
	happens(t, p.OnRequest(mentions(name), func(*proxy.Conn) { p.Hold() }), "the renewal")
	start := time.Now()
	happens(t, lease.Context().Done(), "the end of the lease")
	if took := time.Since(start); took > r.TTL+r.late(t) {
		t.Errorf("the lease ended %v after its renewal was held; the TTL is %v", took, r.TTL)
	}
	return lease, p
}

// hangingServer: Lock says so within the limit of a request.
func hangingServer(t *testing.T, r Rig) {
	through, p := r.proxied(t)
	c := through.clientWith(t, r.impatient()) // some stores make calls when they open
	p.Hang(true)
	p.Reset()
	start := time.Now()
	if lease, err := c.Lock(t.Context(), "hanging"); !errors.Is(err, dlock.ErrUnreachable) {
		t.Errorf("Lock on a server that hangs: %v, %v", lease, err)
	}
	if took := time.Since(start); took > r.TTL/3+slack {
		t.Errorf("it took %v to say so; the limit is %v", took, r.TTL/3)
	}
	p.Hang(false)
	p.Reset()
	unlock(t, r.lockAnyhow(t, c, "hanging"))
}

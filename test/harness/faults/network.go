package faults

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/test/harness/await"
	"github.com/dlock-go/dlock/test/harness/proxy"
)

// Network are the faults of the network between a client and its server. They
// need Addr and At.
var Network = []Fault{
	{"SIGSTOP while the acquisition is answered", pauseDuringReply},
	{"a network that holds everything for longer than the TTL", holdEverything},
	{"a lost answer to an acquisition", loseAcquired},
	{"a lost answer to an acquisition after a wait", loseAcquiredWaiting},
	{"a lost answer to an acquisition by a process that dies", loseAcquiredAndDie},
	{"a lost answer to a renewal", failRenewal("renewed-in-silence", false)},
	{"a reset instead of an answer to a renewal", failRenewal("renewed-and-reset", true)},
	{"an unlock that arrives after another process took the lock", lateUnlock},
	{"a renewal that arrives after another process took the lock", lateRenewal},
	{"a renewal that arrives when the lock is free", lateRenewalOfFree},
	{"a server that accepts connections and hangs", hangingServer},
}

// warmUps is the number of calls before the calls that count. The first calls of
// a client differ: they open connections, load scripts, prepare statements, or
// learn the server's clock.
const warmUps = 5

// warmUpName returns a name that is not part of any other name.
func warmUpName() string { return "warm-up " + driver.NewOwner().Hex() }

// attemptNote is the note of an attempt. It identifies the request that takes the
// lock. Some stores send other requests before it: they read first, or create the
// entry of a new name. Therefore no test loses an answer about a name that was
// never locked.
const attemptNote = "note-of-the-attempt"

// warm makes the first calls of a client and its store.
func (r rig) warm(t testing.TB, c *dlock.Client) {
	t.Helper()
	name := warmUpName()
	for range warmUps {
		unlock(t, r.lockWithRetry(t, c, name))
	}
	r.warmStore(t, r.open(t))
}

func (r rig) warmStore(t testing.TB, store driver.Store) {
	t.Helper()
	name := warmUpName()
	for range warmUps {
		grant, _ := r.acquireWhenFree(t, store, name)
		if errs := store.Renew(t.Context(), []driver.Grant{grant}); errs != nil {
			t.Fatalf("Renew: %v", errs[0])
		}
		release(t, store, grant)
	}
}

// warm makes the first calls of the agent.
func (p agent) warm(ttl time.Duration) {
	p.t.Helper()
	name := warmUpName()
	for range warmUps {
		p.mustLock(name, ttl)
		p.must(order{Do: "unlock"})
	}
}

// pauseDuringReply checks that a grant that has expired when Lock receives it is
// no success. Lock fails, or it waits like any other waiter.
func pauseDuringReply(t *testing.T, r rig) {
	through, p := r.proxied(t)
	agent, contender, store := through.agent(t), r.client(t), r.open(t)
	agent.warm(r.TTL)
	r.mustBeFree(t, "reply", "it was never locked")

	asked := p.OnRequest(mentions(attemptNote), func(*proxy.Conn) { p.Hold(proxy.Replies) })
	agent.send(order{Do: "lock", Name: "reply", TTL: r.TTL, Note: attemptNote})
	await.Event(t, asked, "the request")
	if !becomes(t, store, "reply", true, r.TTL) {
		t.Fatal("the attempt does not take the lock")
	}
	agent.pause()
	p.Deliver()
	lease := r.lock(t, contender, "reply")
	agent.resume()
	wait(t, r.TTL/2) // the agent handles the late answer
	r.mustBeHeld(t, "reply", "the contender holds it")
	stillTrusted(t, lease)
	unlock(t, lease)
	switch a := agent.receive(); {
	case a.Err == "" && a.Token <= lease.Token():
		t.Errorf("Lock returned token %d, of a grant that had expired before token %d", a.Token, lease.Token())
	case a.Err == "":
		agent.must(order{Do: "unlock"})
	case a.Err != "unreachable":
		t.Errorf("Lock returned %s; want unreachable", a.Err)
	}
	r.mustBeFree(t, "reply", "its last holder has unlocked it")
}

// holdEverything checks that the holder stops trusting its lease before the store
// grants the lock to another process.
func holdEverything(t *testing.T, r rig) {
	through, p := r.proxied(t)
	holder, store := through.agent(t), r.open(t)
	token := holder.mustLock("cut-off", r.TTL)
	holder.send(order{Do: "poll"})
	p.Hold()
	grant, granted := r.acquireWhenFree(t, store, "cut-off")
	holder.receive().mustEndBefore(t, granted)
	rises(t, grant.Token, token)
	p.Deliver() // all that the holder has sent meanwhile
	holder.unlockLost()
	if errs := store.Renew(t.Context(), []driver.Grant{grant}); errs != nil {
		t.Errorf("the lock of the new holder is gone: %v", errs[0])
	}
}

// shortTimeout returns options for clients that have to notice a lost answer
// soon.
func (r rig) shortTimeout() *dlock.Options {
	return &dlock.Options{RequestTimeout: r.TTL / 3}
}

// loseAcquired checks that Lock reports an unknown outcome and undoes the
// acquisition, unless the store itself repeats the call in time. A repeated call
// with the same owner finds the existing grant.
func loseAcquired(t *testing.T, r rig) {
	through, p := r.proxied(t)
	c, store := through.clientWith(t, r.shortTimeout()), through.open(t)
	through.warm(t, c)
	through.warmStore(t, store)

	r.mustBeFree(t, "orphan", "it was never locked")
	lost := p.LoseReply(mentions(attemptNote), false)
	switch lease, err := c.Lock(t.Context(), "orphan", dlock.WithTTL(10*r.TTL), dlock.WithNote(attemptNote)); {
	case err == nil && r.RepeatsCalls:
		unlock(t, lease)
	case !errors.Is(err, dlock.ErrUnreachable):
		t.Fatalf("Lock without an answer: %v, %v", lease, err)
	}
	await.Event(t, lost, "the lost answer")
	start := time.Now()
	again := r.lockWithRetry(t, c, "orphan")
	inTime(t, start, r.TTL+r.late(t), "the client got past its own attempt of unknown outcome")
	unlock(t, again)

	r.mustBeFree(t, "idempotent", "it was never locked")
	req := driver.Request{Name: "idempotent", Owner: driver.NewOwner(), TTL: r.TTL, Holder: driver.Holder{Note: attemptNote}}
	lost = p.LoseReply(mentions(attemptNote), true)
	if grant, err := store.Acquire(t.Context(), req); err == nil && !r.RepeatsCalls || errors.Is(err, driver.ErrHeld) {
		t.Fatalf("Acquire without an answer: %+v, %v", grant, err)
	}
	await.Event(t, lost, "the lost answer")
	held := r.mustBeHeld(t, "idempotent", "it was granted although the answer is lost")
	grant, err := store.Acquire(t.Context(), req)
	if err != nil {
		t.Fatalf("Acquire again with the same owner: %v", err)
	}
	// A token that is not confirmed yet may be replaced by a larger one.
	if grant.Token < held.Token {
		t.Errorf("the second answer has token %d, the lost answer had %d", grant.Token, held.Token)
	}
	release(t, store, grant)
	r.mustBeFree(t, "idempotent", "one release is enough for two acquisitions by one owner")
}

// loseAcquiredWaiting checks that a waiter repeats its attempt and finds that it
// holds the lock.
func loseAcquiredWaiting(t *testing.T, r rig) {
	through, p := r.proxied(t)
	c := through.clientWith(t, r.shortTimeout())
	through.warm(t, c)
	first := r.lock(t, r.client(t), "waited-for")
	asked := p.OnRequest(mentions("waited-for"), func(*proxy.Conn) {})
	done := r.lockAsync(t.Context(), c, "waited-for", dlock.WithNote(attemptNote))
	await.Event(t, asked, "the first attempt")
	wait(t, r.TTL/4) // the client begins to wait
	p.Hold()         // its next attempt arrives when the lock is free
	lost := p.LoseReply(mentions(attemptNote), false)
	unlock(t, first)
	p.Deliver()
	await.Event(t, lost, "the lost answer")
	held := r.mustBeHeld(t, "waited-for", "the waiter holds it, but its answer is lost")
	second := served(t, done)
	rises(t, second.Token(), first.Token())
	if second.Token() < held.Token {
		t.Errorf("token %d after %d in the lost answer", second.Token(), held.Token)
	}
	unlock(t, second)
	r.mustBeFree(t, "waited-for", "it was unlocked")
}

// loseAcquiredAndDie checks that a lock whose grant never arrived is free after
// its TTL.
func loseAcquiredAndDie(t *testing.T, r rig) {
	through, p := r.proxied(t)
	agent, contender := through.agent(t), r.client(t)
	agent.warm(r.TTL)
	r.mustBeFree(t, "last-words", "it was never locked")
	lost := p.LoseReply(mentions(attemptNote), false)
	agent.send(order{Do: "lock", Name: "last-words", TTL: r.TTL, Note: attemptNote})
	await.Event(t, lost, "the lost answer")
	start := time.Now()
	if lease, err := contender.TryLock(t.Context(), "last-words"); !errors.Is(err, dlock.ErrHeld) {
		t.Fatalf("TryLock: %v, %v; want that it is held: it was granted although the answer is lost", lease, err)
	}
	agent.Kill()
	unlock(t, r.lock(t, contender, "last-words"))
	inTime(t, start, r.TTL+r.late(t), "the lock was free")
}

// failRenewal returns a fault that checks that a renewal whose answer is lost is repeated, and that the lock
// is kept.
func failRenewal(name string, reset bool) func(t *testing.T, r rig) {
	return func(t *testing.T, r rig) {
		r.TTL *= 2
		for try := range 3 { // a busy machine may be late
			if !r.losesRenewal(t, fmt.Sprint(name, try), reset) {
				return
			}
		}
		t.Error("the lock was lost in each of three tries")
	}
}

// losesRenewal reports whether the lock was lost.
func (r rig) losesRenewal(t *testing.T, name string, reset bool) bool {
	through, p := r.proxied(t)
	through.warm(t, through.client(t))
	renewed := make(chan error, 100)
	c := through.clientWith(t, &dlock.Options{Hooks: dlock.Hooks{
		Renewed: func(e dlock.Event) { renewed <- e.Err },
		Lost:    func(e dlock.Event) { renewed <- e.Err; renewed <- nil },
	}})
	lease := r.lock(t, c, name)
	token := lease.Token()
	lost := p.LoseReply(mentions(name), reset)
	await.Event(t, lost, "the lost answer")
	if err := await.Event(t, renewed, "the outcome of the renewal"); err == nil && !r.RepeatsCalls {
		t.Error("the renewal succeeded without an answer")
	}
	for await.Event(t, renewed, "another renewal") != nil {
	}
	wait(t, r.TTL) // longer than the grant without the renewal
	if lease.Context().Err() != nil {
		unlockLost(t, lease)
		return true
	}
	r.mustHaveToken(t, r.mustBeHeld(t, name, "it was renewed"), token)
	unlock(t, lease)
	return false
}

// hangingServer checks that Lock returns ErrUnreachable within the timeout of a
// request.
func hangingServer(t *testing.T, r rig) {
	through, p := r.proxied(t)
	c := through.clientWith(t, r.shortTimeout()) // some stores make calls when they open
	p.Hang(true)
	p.Reset()
	start := time.Now()
	if lease, err := c.Lock(t.Context(), "hanging"); !errors.Is(err, dlock.ErrUnreachable) {
		t.Errorf("Lock on a server that hangs: %v, %v", lease, err)
	}
	inTime(t, start, r.TTL/3+3*time.Second, "Lock returned") // less than the default timeout
	p.Hang(false)
	p.Reset()
	unlock(t, r.lockWithRetry(t, c, "hanging"))
}

package faults

import (
	"context"
	"encoding/binary"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/test/harness/await"
)

// ServerClock are the faults of the server's wall clock. They need SetClock and a
// server that computes expiry from that clock. Other tests on the same server
// notice them.
var ServerClock = []Fault{
	{"the server's clock steps forward by an hour", clockForward},
	{"the server's clock steps back by an hour and the holder dies", clockBack},
}

// ClientClock are the faults of a client whose wall clock is wrong. The clock of
// a Go program cannot be moved. Therefore these faults move the server's clock
// and check that no client sends the time of its own clock. They need SetClock,
// Addr and At.
var ClientClock = []Fault{
	{"the clock of clients is an hour behind", func(t *testing.T, r rig) { clientClock(t, r, time.Hour) }},
	{"the clock of clients is an hour ahead", func(t *testing.T, r rig) { clientClock(t, r, -time.Hour) }},
}

// clockForward checks that the token protects the resource when the server grants
// the lock too early, which no client can prevent. The first holder notices at
// its next renewal.
func clockForward(t *testing.T, r rig) {
	r.TTL *= 10 // so that the limit below is before the end of the trust
	resource := new(fenced)
	store := r.open(t)
	lease := r.lock(t, r.client(t), "forward")
	resource.accepts(t, lease.Token())
	r.SetClock(t, time.Hour)
	grant, _ := r.acquireWhenFree(t, store, "forward")
	granted := time.Now()
	rises(t, grant.Token, lease.Token())
	resource.accepts(t, grant.Token)
	resource.rejects(t, lease.Token())
	await.Event(t, lease.Context().Done(), "the end of the first lease")
	inTime(t, granted, r.TTL/3+slack, "the loss was noticed by the first holder")
	unlockLost(t, lease)
	r.mustBeHeld(t, "forward", "the second holder holds it")
	release(t, store, grant)
	r.SetClock(t, 0) // the operator corrects the clock
	rises(t, r.mustBeFree(t, "forward", "it was released"), grant.Token)
}

// clockBack checks that the lock of a dead holder stays held for as long as the
// clock stepped back, as documented, unless an operator breaks it.
func clockBack(t *testing.T, r rig) {
	holder := r.agent(t)
	token := holder.mustLock("back", r.TTL)
	holder.Kill()
	r.SetClock(t, -time.Hour)
	wait(t, r.TTL+time.Second)
	held := r.mustBeHeld(t, "back", "the server's clock says that an hour is left")
	if held.Remaining < time.Hour/2 {
		t.Errorf("the lock expires in %v; want about an hour", held.Remaining)
	}
	if err := r.client(t).Break(t.Context(), "back", held.Token); err != nil {
		t.Errorf("Break: %v", err)
	}
	rises(t, r.mustBeFree(t, "back", "it was broken"), token)
}

// clientClock checks that every time that a client sends comes from the server's
// clock.
func clientClock(t *testing.T, r rig, offset time.Duration) {
	r.TTL *= 2 // a busy machine may be late
	r.SetClock(t, offset)
	through, p := r.proxied(t)
	var mu sync.Mutex
	var sent []byte
	p.OnRequest(func(request []byte) bool {
		mu.Lock()
		defer mu.Unlock()
		sent = append(append(sent, request...), ' ')
		return false
	}, nil)
	start := time.Now()
	renewed := make(chan struct{}, 100)
	c := through.clientWith(t, &dlock.Options{Hooks: dlock.Hooks{Renewed: func(dlock.Event) { renewed <- struct{}{} }}})
	through.TTL = r.TTL
	useEverything(t, through, c, renewed)

	mu.Lock()
	defer mu.Unlock()
	if len(sent) == 0 {
		t.Fatal("nothing was sent through the proxy")
	}
	if own := append(times(sent, start, time.Now()), binaryTimes(sent, start, time.Now())...); len(own) > 0 {
		t.Errorf("times of the client's clock were sent: %v", own)
	}
	servers := times(sent, start.Add(offset), time.Now().Add(offset))
	t.Logf("%d bytes were sent, with %d numbers that follow the server's clock", len(sent), len(servers))
}

// useEverything makes every kind of call of a client.
func useEverything(t *testing.T, r rig, c *dlock.Client, renewed <-chan struct{}) {
	t.Helper()
	modes := [][]dlock.Option{nil}
	if c.Traits().Fair {
		modes = append(modes, []dlock.Option{dlock.WithFair()})
	}
	for _, opts := range modes {
		lease := r.lock(t, c, "wall", opts...)
		await.Event(t, renewed, "a renewal")
		waiter := r.client(t)
		if _, err := waiter.Lock(t.Context(), "wall", append(opts, dlock.WithWait(r.TTL/4))...); err == nil {
			t.Error("Lock: the lock was granted twice")
		}
		unlock(t, lease)
		again := r.lock(t, c, "wall", opts...)
		r.mustBeHeld(t, "wall", "it was locked again")
		unlock(t, again)
	}
	both, err := c.LockAll(t.Context(), []string{"wall", "ceiling"}, dlock.WithTTL(r.TTL))
	if err != nil {
		t.Fatalf("LockAll: %v", err)
	}
	held := r.mustBeHeld(t, "ceiling", "LockAll locked it")
	if err := c.Break(t.Context(), "ceiling", held.Token); err != nil {
		t.Errorf("Break: %v", err)
	}
	for info, err := range c.Locks(t.Context(), "wa") {
		if err != nil || info.Name != "wall" {
			t.Errorf("Locks: %+v, %v", info, err)
		}
	}
	_ = both.Unlock(context.Background()) // one of the locks was broken
}

var digits = regexp.MustCompile(`\d{9,20}`)

// times returns the numbers in text that are a time between from and to, with
// some minutes of tolerance, in any common unit.
func times(text []byte, from, to time.Time) (found []string) {
	const tolerance = 10 * time.Minute
	from, to = from.Add(-tolerance), to.Add(tolerance)
	for _, number := range digits.FindAll(text, -1) {
		n, err := strconv.ParseInt(string(number), 10, 64)
		if err != nil {
			continue // too large for a time in nanoseconds
		}
		for _, unit := range []time.Duration{time.Second, time.Millisecond, time.Microsecond, time.Nanosecond} {
			if perSecond := int64(time.Second / unit); n >= from.Unix()*perSecond && n <= to.Unix()*perSecond {
				found = append(found, fmt.Sprintf("%d (in units of %v)", n, unit))
			}
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// binaryTimes is like times, for protocols that send numbers as eight bytes. It
// ignores times in seconds, because unrelated bytes often match them.
func binaryTimes(sent []byte, from, to time.Time) (found []string) {
	const tolerance = 10 * time.Minute
	from, to = from.Add(-tolerance), to.Add(tolerance)
	for i := range max(len(sent)-7, 0) {
		for _, order := range []binary.ByteOrder{binary.LittleEndian, binary.BigEndian} {
			n := int64(order.Uint64(sent[i:]))
			for _, unit := range []time.Duration{time.Millisecond, time.Microsecond, time.Nanosecond} {
				if perSecond := int64(time.Second / unit); n >= from.Unix()*perSecond && n <= to.Unix()*perSecond {
					found = append(found, fmt.Sprintf("%d (%v, in units of %v)", n, order, unit))
				}
			}
		}
	}
	return found
}

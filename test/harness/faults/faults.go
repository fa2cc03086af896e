package faults

import (
	"bytes"
	"context"
	"errors"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/test/harness/proxy"
)

// Rig is a store to try faults on. Every store has the first three fields. The
// others are abilities that some faults need: the test of a store lists the
// faults that its rig is able to do, and a fault that lacks an ability fails.
type Rig struct {
	// Open connects to the state that all processes share.
	Open func(ctx context.Context) (driver.Store, error)
	// Command starts the test binary again, as a process that calls Play with
	// the same Open.
	Command func() *exec.Cmd
	// TTL of the locks.
	TTL time.Duration

	// Addr is where the server listens. At is the same rig with clients that
	// find the server at another address: that of a proxy.
	Addr string
	At   func(addr string) Rig

	// AsksAgain says that the store itself asks again when an answer is lost, so
	// that its callers may not notice.
	AsksAgain bool

	// Delete makes the server forget a lock, Flush everything, as an operator
	// might.
	Delete func(ctx context.Context, name string) error
	Flush  func(ctx context.Context) error

	// Fill uses up the memory of the server, and Drain gives it back. Between
	// two calls of Fill other clients get their turn.
	Fill  func(ctx context.Context) error
	Drain func(ctx context.Context) error

	// SetClock moves the date that the server sees.
	SetClock func(offset time.Duration) error

	// KillConnections ends all connections that clients have, from the server's
	// side.
	KillConnections func(ctx context.Context) error

	// Restart kills the server, and starts it again with the data that survived.
	Restart func() error

	// Probe is how long it takes a store whose locks live as long as a connection
	// to notice that there is none any more.
	Probe time.Duration

	// Failover is for stores whose server has replicas, and Partition for those
	// whose server can be separated from them.
	Failover  *Failover
	Partition *Partition

	// Members are the servers of a quorum.
	Members []Member
}

// Fault is something that happens, and what is expected then.
type Fault struct {
	Name string
	Try  func(t *testing.T, r Rig)
}

// together limits the faults that are tried at the same time.
const together = 12

// Run tries all faults on one rig, several at a time: they spend their time
// waiting, so that more of them fit on a machine than tests that compute.
func Run(t *testing.T, r Rig, faults []Fault) {
	t.Helper()
	RunEach(t, func(testing.TB) Rig { return r }, faults)
}

// RunEach is Run with a rig of its own for each fault, for those that others
// would notice.
func RunEach(t *testing.T, rig func(t testing.TB) Rig, faults []Fault) {
	t.Helper()
	places := make(chan struct{}, together)
	var all sync.WaitGroup
	for _, fault := range faults {
		all.Go(func() {
			places <- struct{}{}
			defer func() { <-places }()
			t.Run(fault.Name, func(t *testing.T) { fault.Try(t, rig(t)) })
		})
	}
	all.Wait()
}

const (
	// slack is how late something may be noticed on a machine that is busy.
	slack = time.Second
	// limit is for what must happen, however long it takes.
	limit = 30 * time.Second
)

// late is how long after the end of its TTL a lock may still be seen.
func (r Rig) late(t testing.TB) time.Duration {
	t.Helper()
	return r.open(t).Traits().Granularity + slack
}

func (r Rig) open(t testing.TB) driver.Store {
	t.Helper()
	store, err := r.Open(t.Context())
	if err != nil {
		t.Fatalf("open the store: %v", err)
	}
	t.Cleanup(func() {
		// A fault may have taken the server away for good, with what was left to undo.
		if err := store.Close(); err != nil && !errors.Is(err, driver.ErrUnreachable) {
			t.Errorf("close the store: %v", err)
		}
	})
	return store
}

func (r Rig) client(t testing.TB) *dlock.Client {
	t.Helper()
	return r.clientWith(t, nil)
}

func (r Rig) clientWith(t testing.TB, opts *dlock.Options) *dlock.Client {
	t.Helper()
	c := dlock.New(r.open(t), opts)
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return c
}

func (r Rig) lock(t testing.TB, c *dlock.Client, name string, opts ...dlock.Option) *dlock.Lease {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*r.TTL+limit)
	defer cancel()
	lease, err := c.Lock(ctx, name, append([]dlock.Option{dlock.WithTTL(r.TTL)}, opts...)...)
	if err != nil {
		t.Fatalf("Lock(%q): %v", name, err)
	}
	return lease
}

// seize asks for the lock all the time until it has it, and says when it had it
// at the latest.
func (r Rig) seize(t testing.TB, store driver.Store, name string) (grant driver.Grant, at int64) {
	t.Helper()
	req := driver.Request{Name: name, Owner: driver.NewOwner(), TTL: r.TTL}
	deadline := time.Now().Add(10*r.TTL + limit)
	for {
		grant, err := store.Acquire(t.Context(), req)
		at = monotonic()
		switch {
		case err == nil:
			return grant, at
		case !errors.Is(err, driver.ErrHeld):
			t.Fatalf("Acquire(%q): %v", name, err)
		case time.Now().After(deadline):
			t.Fatalf("%q does not get free: %v", name, err)
		}
		wait(t, time.Millisecond)
	}
}

// refuses checks that somebody has the lock, and returns what is known of it.
func (r Rig) refuses(t testing.TB, name string, why string) dlock.HeldError {
	t.Helper()
	lease, err := r.client(t).TryLock(t.Context(), name, dlock.WithTTL(r.TTL))
	held, ok := errors.AsType[*dlock.HeldError](err)
	if !ok {
		t.Errorf("TryLock(%q): %v; want that it is held: %s", name, err, why)
		if err == nil {
			unlock(t, lease)
		}
		return dlock.HeldError{}
	}
	return *held
}

// grants checks that nobody has the lock, and returns the token of another grant.
func (r Rig) grants(t testing.TB, name string, why string) (token uint64) {
	t.Helper()
	lease, err := r.client(t).TryLock(t.Context(), name, dlock.WithTTL(r.TTL))
	if err != nil {
		t.Errorf("TryLock(%q): %v; want that it is free: %s", name, err, why)
		return 0
	}
	unlock(t, lease)
	return lease.Token()
}

// proxied puts a proxy before the server.
func (r Rig) proxied(t testing.TB) (Rig, *proxy.Proxy) {
	t.Helper()
	if r.At == nil {
		t.Fatal("the rig does not say how to reach the server through a proxy")
	}
	p := proxy.Run(t, r.Addr)
	return r.At(p.Addr()), p
}

// mentions finds the requests that are about a lock. While it is held and nobody
// waits for it, these are renewals.
func mentions(name string) func(request []byte) bool {
	return func(request []byte) bool { return bytes.Contains(request, []byte(name)) }
}

func unlock(t testing.TB, lease *dlock.Lease) {
	t.Helper()
	if err := lease.Unlock(context.Background()); err != nil {
		t.Errorf("Unlock(%q): %v", lease.Name(), err)
	}
}

// unlockLost unlocks a lease that was lost.
func unlockLost(t testing.TB, lease *dlock.Lease) {
	t.Helper()
	if err := lease.Unlock(context.Background()); !errors.Is(err, dlock.ErrNotHeld) {
		t.Errorf("Unlock(%q) says %v; want that the lock was lost", lease.Name(), err)
	}
}

// happens waits for an event.
func happens[T any](t testing.TB, event <-chan T, what string) T {
	t.Helper()
	select {
	case e := <-event:
		return e
	case <-time.After(limit):
		t.Fatalf("%s: did not happen within %v", what, limit)
	}
	panic("unreachable")
}

// wait lets time pass, which is what is tested.
func wait(t testing.TB, d time.Duration) {
	t.Helper()
	select {
	case <-time.After(d):
	case <-t.Context().Done():
		t.Fatal("the test ended")
	}
}

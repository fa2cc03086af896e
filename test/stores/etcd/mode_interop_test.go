package etcd

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/test/harness/await"
	"github.com/dlock-go/dlock/test/harness/servers"
	"github.com/dlock-go/dlock/test/harness/want"
)

// TestInteropOfModes: the locks of other programs exclude dlock's shared holders and permits, wait
// for all of them, and wake them. While such a program waits, dlock admits no further holder: the
// program will not wait for it.
func TestInteropOfModes(t *testing.T) {
	t.Parallel()
	interoperate(t, map[string]func(*interopRig){
		"shared":     func(r *interopRig) { r.locks(true, dlock.WithShared()) },
		"permits":    (*interopRig).permits,
		"downgraded": (*interopRig).downgraded,
	})
}

// interoperate runs tests with each other program, on a current server and on an old one.
func interoperate(t *testing.T, tests map[string]func(*interopRig)) {
	t.Helper()
	for _, kind := range []*servers.Kind{servers.Etcd, servers.EtcdDebian} {
		t.Run(kind.Name, func(t *testing.T) {
			t.Parallel()
			server := servers.Run(t, kind)
			for program, start := range map[string]func(t testing.TB, key string) contender{
				"concurrency.Mutex": func(t testing.TB, key string) contender { return newMutex(t, server, key) },
				"etcdctl lock":      func(_ testing.TB, key string) contender { return &etcdctl{server: server, key: key} },
			} {
				for what, test := range tests {
					t.Run(program+" "+what, func(t *testing.T) {
						t.Parallel()
						name := strings.ReplaceAll(program+"-"+what, " ", "-")
						r := &interopRig{t: t, name: name, other: start(t, "shop/"+name)}
						for i := range r.clients {
							r.clients[i] = newClient(t, server.URL()+"/shop", time.Minute)
						}
						test(r)
					})
				}
			}
		})
	}
}

// interopRig is clients of dlock and another program on one name.
type interopRig struct {
	t       *testing.T
	name    string
	clients [3]*dlock.Client
	other   contender
}

// try returns the error of TryLock, and the lease if there is none.
func (r *interopRig) try(i int, opts ...dlock.Option) (*dlock.Lease, error) {
	ctx, cancel := context.WithTimeout(r.t.Context(), limit)
	defer cancel()
	return r.clients[i].TryLock(ctx, r.name, opts...)
}

// refuses checks that client i does not get the lock.
func (r *interopRig) refuses(i int, want error, when string, opts ...dlock.Option) {
	r.t.Helper()
	if _, err := r.try(i, opts...); !errors.Is(err, want) {
		r.t.Errorf("TryLock %s: %v; want %v", when, err, want)
	}
}

// admits checks that client i gets the lock at once.
func (r *interopRig) admits(i int, when string, opts ...dlock.Option) *dlock.Lease {
	r.t.Helper()
	lease, err := r.try(i, opts...)
	if err != nil {
		r.t.Fatalf("TryLock %s: %v", when, err)
	}
	return lease
}

// waits locks in the background, and returns when n waiters have a place.
func (r *interopRig) waits(i, n int, opts ...dlock.Option) <-chan any {
	r.t.Helper()
	got := make(chan any, 1)
	go func() {
		ctx, cancel := context.WithTimeout(r.t.Context(), limit)
		defer cancel()
		if lease, err := r.clients[i].Lock(ctx, r.name, opts...); err != nil {
			got <- err
		} else {
			got <- lease
		}
	}()
	r.awaitPlaces(n)
	return got
}

func (r *interopRig) awaitPlaces(n int) {
	r.t.Helper()
	await.Until(r.t, "a waiter has its place", func() bool { return waitersOf(r.clients[0], r.name) == n })
}

// served returns the lease of a waiter that was woken.
func (r *interopRig) served(got <-chan any) *dlock.Lease {
	r.t.Helper()
	start := time.Now()
	lease, ok := (<-got).(*dlock.Lease)
	if took := time.Since(start); !ok || took > wakeLimit {
		r.t.Fatalf("a waiter of dlock was served %v after %v", ok, took)
	}
	return lease
}

// otherWaits makes the other program wait behind dlock's holders. It is not served before all of
// leases are unlocked.
func (r *interopRig) otherWaits(opts []dlock.Option, leases ...*dlock.Lease) {
	r.t.Helper()
	served := make(chan struct{})
	go func() { defer close(served); r.other.lock(r.t) }()
	r.awaitPlaces(1)
	for _, lease := range leases {
		r.refuses(2, dlock.ErrHeld, "while the other program waits", opts...)
		select {
		case <-served:
			r.t.Fatal("the other program got a lock that dlock holds")
		case <-time.After(100 * time.Millisecond):
		}
		want.Unlock(r.t, lease)
	}
	happens(r.t, served)
}

// locks takes the lock and the other program's in turn, for two holders of dlock if they may be together.
func (r *interopRig) locks(together bool, opts ...dlock.Option) {
	r.other.lock(r.t)
	_, err := r.try(0, opts...)
	held, ok := errors.AsType[*dlock.HeldError](err)
	if !ok || held.Token == 0 {
		r.t.Fatalf("TryLock while the other program holds the lock: %v", err)
	}
	got := r.waits(0, 1, opts...)
	r.other.unlock(r.t)
	leases := []*dlock.Lease{r.served(got)}
	if leases[0].Token() <= held.Token {
		r.t.Errorf("token %d after the other's %d", leases[0].Token(), held.Token)
	}
	if together {
		leases = append(leases, r.admits(1, "beside a holder", opts...))
	}
	r.otherWaits(opts, leases...)
	r.refuses(1, dlock.ErrHeld, "while the other program holds the lock again", opts...)
	got = r.waits(1, 1, opts...)
	r.other.unlock(r.t)
	want.Unlock(r.t, r.served(got))
}

func (r *interopRig) permits() {
	three := []dlock.Option{dlock.WithLimit(3)}
	r.other.lock(r.t)
	r.refuses(0, dlock.ErrMode, "while the other program holds the lock", three...)
	r.other.unlock(r.t)
	first := r.waitFree(three...)
	second := r.admits(1, "beside a permit", three...)

	served := make(chan struct{})
	go func() { defer close(served); r.other.lock(r.t) }()
	r.awaitPlaces(1)
	behind := r.waits(1, 2, three...) // there is a permit, but the other program will not wait for it
	for _, lease := range []*dlock.Lease{first, second} {
		select {
		case <-served:
			r.t.Fatal("the other program got a lock while there were permits")
		case got := <-behind:
			r.t.Fatalf("a permit behind the other program: %v", got)
		case <-time.After(100 * time.Millisecond):
		}
		want.Unlock(r.t, lease)
	}
	happens(r.t, served)
	select {
	case got := <-behind:
		if err, _ := got.(error); !errors.Is(err, dlock.ErrMode) {
			r.t.Errorf("a waiter for a permit of what is a lock now: %v; want ErrMode", got)
		}
	case <-time.After(wakeLimit):
		r.t.Errorf("a waiter for a permit of what is a lock now waits for longer than %v", wakeLimit)
	}
	r.other.unlock(r.t)
}

// waitFree locks a name that is about to be free: etcdctl takes a moment to end.
func (r *interopRig) waitFree(opts ...dlock.Option) (lease *dlock.Lease) {
	r.t.Helper()
	await.Until(r.t, "the lock is free", func() (ok bool) {
		var err error
		lease, err = r.try(0, opts...)
		return err == nil
	})
	return lease
}

func (r *interopRig) downgraded() {
	lease := r.admits(0, "of a free lock")
	if err := lease.Downgrade(r.t.Context()); err != nil {
		r.t.Fatalf("Downgrade: %v", err)
	}
	r.otherWaits([]dlock.Option{dlock.WithShared()}, lease, r.admits(1, "beside a downgraded lock", dlock.WithShared()))
	r.other.unlock(r.t)
	want.Unlock(r.t, r.waitFree())
}

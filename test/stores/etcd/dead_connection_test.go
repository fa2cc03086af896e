package etcd

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/test/harness/await"
	"github.com/dlock-go/dlock/test/harness/proxy"
	"github.com/dlock-go/dlock/test/harness/servers"
	"github.com/dlock-go/dlock/test/harness/want"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/namespace"
)

// TestSilentConnectionIsReplaced: each call of a store whose connection stopped answering is
// answered over a new connection, although the client has no keep-alive.
func TestSilentConnectionIsReplaced(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.Etcd)
	for what, call := range map[string]func(ctx context.Context, store driver.Store, held driver.Grant) error{
		"acquire": func(ctx context.Context, store driver.Store, _ driver.Grant) error {
			return want.Err(store.Acquire(ctx, request("acquired")))
		},
		"acquire with a new lease": func(ctx context.Context, store driver.Store, _ driver.Grant) error {
			req := request("long")
			req.TTL = time.Hour
			return want.Err(store.Acquire(ctx, req))
		},
		"renew": func(ctx context.Context, store driver.Store, held driver.Grant) error {
			return errors.Join(store.Renew(ctx, []driver.Grant{held})...)
		},
		"release": func(ctx context.Context, store driver.Store, held driver.Grant) error {
			return store.Release(ctx, held)
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			p := proxy.Run(t, server.Addr())
			store := storeOver(t, p.Addr(), nil)
			held := want.Acquire(t, store, request("held before "+what))
			p.Blackhole()
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			start := time.Now()
			if err := call(ctx, store, held); err != nil {
				t.Errorf("over a silent connection: %v", err)
			}
			if took := time.Since(start); took > 10*time.Second { // gRPC's keep-alives would take 13 at best
				t.Errorf("the connection was replaced after %v; want about 3 s", took)
			}
		})
	}
}

// TestWaiterSurvivesASilentConnection: a waiter whose connection stopped answering gets the
// lock soon after its release.
func TestWaiterSurvivesASilentConnection(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.Etcd)
	p := proxy.Run(t, server.Addr())
	holder := newStore(t, server.URL())
	held := want.Acquire(t, holder, request("x"))
	waiter := dlock.New(storeOver(t, p.Addr(), nil), &dlock.Options{TTL: silentTTL})
	t.Cleanup(func() { _ = waiter.Close() }) // its connection is dead
	got := want.Locked(t, waiter, "x")
	await.Until(t, "the waiter has a place", func() bool { return waiters(holder, "x") == 1 })
	p.Blackhole()
	want.Release(t, holder, held)
	want.Served(t, got, held.Token)
}

// TestWatchMovesWithTheConnection: when a silent connection was replaced, watches report
// releases over the new one.
func TestWatchMovesWithTheConnection(t *testing.T) {
	t.Parallel()
	r := newLateRig(t)
	held := want.Acquire(t, r.other, request("x"))
	woken := want.Watch(t, r.store, request("x"))
	r.proxy.Blackhole()
	want.Acquire(t, r.store, request("y")) // replaces the connection
	happens(t, woken)                      // because a deletion may have been missed
	want.Release(t, r.other, held)
	happens(t, woken)
}

// TestSilentClusterIsDialledAgain: when the connections to all members stopped answering, the store
// dials one of them, and another one if that member is gone.
func TestSilentClusterIsDialledAgain(t *testing.T) {
	t.Parallel()
	cluster := servers.RunEtcdCluster(t, nil)
	proxies, store := behindProxies(t, cluster.Members...)
	acquire := func(name string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		var err error
		for ctx.Err() == nil {
			if _, err = store.Acquire(ctx, request(name)); !errors.Is(err, driver.ErrUnreachable) {
				break
			}
		}
		if err != nil {
			t.Fatalf("Acquire(%q): %v", name, err)
		}
	}
	connected := func() (n []int) {
		for _, p := range proxies {
			n = append(n, p.Connections())
		}
		return n
	}
	acquire("before")
	before := connected()
	for _, p := range proxies {
		p.Blackhole()
	}
	acquire("silent")
	killed := 0
	for i, n := range connected() {
		if n > before[i] { // it was dialled
			killed++
			want.OK(t, cluster.Members[i].Kill())
		}
	}
	if killed != 1 {
		t.Fatalf("%d members were dialled; want 1", killed)
	}
	acquire("killed")
}

// TestNamespaceIsKept: a store over a client with a namespace writes nothing outside of it, also
// if the connection stopped answering.
func TestNamespaceIsKept(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.Etcd)
	raw := rawClient(t, server.URL())
	p := proxy.Run(t, server.Addr())
	store := storeOver(t, p.Addr(), func(client *clientv3.Client) {
		client.KV = namespace.NewKV(client.KV, "space/")
		client.Watcher = namespace.NewWatcher(client.Watcher, "space/")
	})
	want.Acquire(t, store, request("before"))
	p.Blackhole()
	t.Cleanup(p.Reset) // so that Close reaches the server
	ctx, cancel := context.WithTimeout(t.Context(), 4500*time.Millisecond)
	defer cancel()
	if _, err := store.Acquire(ctx, request("after")); errors.Is(err, driver.ErrHeld) {
		t.Errorf("Acquire of a free lock over a silent connection: %v", err)
	}
	keys, err := raw.Get(t.Context(), "", clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil || len(keys.Kvs) == 0 {
		t.Fatalf("%v, %v", keys, err)
	}
	for _, kv := range keys.Kvs {
		if !strings.HasPrefix(string(kv.Key), "space/") {
			t.Errorf("the key %q is outside of the namespace", kv.Key)
		}
	}
}

// goneFault makes a server disappear and come back.
type goneFault struct{ lose, bringBack func(*servers.Server) error }

// serverGone are the ways in which a server disappears: it refuses connections, or does not answer.
var serverGone = map[string]goneFault{
	"killed": {(*servers.Server).Kill, (*servers.Server).Restart},
	"paused": {(*servers.Server).Pause, (*servers.Server).Resume},
}

// begin makes the server disappear until the end of the test, where Close needs it.
func (f goneFault) begin(t *testing.T, server *servers.Server) {
	t.Helper()
	want.OK(t, f.lose(server))
	t.Cleanup(func() {
		if err := f.bringBack(server); err != nil {
			t.Error(err)
		}
	})
}

// TestCallsWithoutADeadlineEnd: while no member answers, a call whose context never ends returns
// ErrUnreachable.
func TestCallsWithoutADeadlineEnd(t *testing.T) {
	t.Parallel()
	server, cluster := servers.Run(t, servers.Etcd), servers.RunEtcdCluster(t, nil)
	for where, c := range map[string]struct {
		url    string
		paused []*servers.Server
	}{
		"one server": {server.URL(), []*servers.Server{server}},
		"no quorum":  {cluster.URL(), cluster.Members[:2]},
	} {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			store := storeOver(t, strings.TrimPrefix(c.url, "etcd://"), nil)
			held := want.Acquire(t, store, request("held"))
			for _, member := range c.paused {
				serverGone["paused"].begin(t, member)
			}
			ended := make(map[string]chan error)
			for what, call := range map[string]func() error{
				"Acquire": func() error { return want.Err(store.Acquire(t.Context(), request("x"))) },
				"Renew":   func() error { return want.RenewError(t, store, held) },
				"Break":   func() error { return store.Break(t.Context(), "held", held.Token) },
				"Find":    func() error { _, _, err := store.Find(t.Context(), "held"); return err },
				"List": func() error {
					for _, err := range store.List(t.Context(), "") {
						return err
					}
					return nil
				},
				"Diagnose": func() error { return want.Err(store.Diagnose(t.Context())) },
				"Watch":    func() error { return want.Err(store.Watch(t.Context(), request("y"), func() {})) },
			} {
				end := make(chan error, 1)
				ended[what] = end
				go func() { end <- call() }()
			}
			for what, end := range ended {
				err := await.Event(t, end, what+" ends")
				// The member that is left opens a watch until it misses the leader.
				opened := where == "no quorum" && what == "Watch" && err == nil
				if !opened && (!errors.Is(err, driver.ErrUnreachable) || errors.Is(err, context.Canceled)) {
					t.Errorf("%s: %v; want ErrUnreachable, and no cancellation", what, err)
				}
			}
		})
	}
}

// TestGoneServerIsNotAnsweredForFromMemory: an attempt of a waiter whose server is gone fails within
// its context, and never with what the store remembers of the holder. Lock returns ErrUnreachable when
// the server has been gone for a TTL.
func TestGoneServerIsNotAnsweredForFromMemory(t *testing.T) {
	t.Parallel()
	for how, fault := range serverGone {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			server := servers.Run(t, servers.Etcd)
			observer, store := newStore(t, server.URL()), newStore(t, server.URL())
			want.Acquire(t, observer, request("x"))
			want.Watch(t, store, request("x"))
			req := queued(request("x"))
			want.Held(t, store, req, "another has it")
			asked := time.Now()
			want.Watch(t, store, req)
			client, gaveUp := newClient(t, server.URL(), faultTTL), make(chan error, 1)
			go func() { gaveUp <- want.Err(client.Lock(t.Context(), "x")) }()
			await.Until(t, "both have places", func() bool { return waiters(observer, "x") == 2 })
			fault.begin(t, server)
			// What the server said a moment ago may be repeated.
			await.Until(t, "the last answer is old", func() bool { return time.Since(asked) > 1500*time.Millisecond })
			for range 3 {
				ctx, cancel := context.WithTimeoutCause(t.Context(), 500*time.Millisecond, driver.ErrUnreachable)
				_, err := store.Acquire(ctx, req)
				cancel()
				if !errors.Is(err, driver.ErrUnreachable) || errors.Is(err, driver.ErrHeld) {
					t.Errorf("an attempt of a waiter: %v; want ErrUnreachable", err)
				}
			}
			want.Error(t, "Lock", await.Event(t, gaveUp, "Lock gives up"), dlock.ErrUnreachable)
		})
	}
}

// TestWatchReopensSoon: a watch that ends because the server compacted the revisions that it missed
// is opened again soon, also after many such ends, and wakes its waiters.
func TestWatchReopensSoon(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, r *lateRig) {
		woken := want.Watch(t, newStore(t, "etcd://"+r.proxy.Addr()), request("x"))
		fastest := limit
		// Without a reset the pause would reach its maximum after six ends: more than three quarters of
		// a second.
		for i := range 12 {
			r.proxy.Hold()
			r.proxy.Reset()
			for range 2 {
				reply := want.Value(r.raw.Put(t.Context(), "other", ""))(t)
				want.OK(t, want.Err(r.raw.Compact(t.Context(), reply.Header.Revision)))
			}
			start := time.Now()
			r.proxy.Deliver()
			happens(t, woken)
			if i >= 7 {
				fastest = min(fastest, time.Since(start))
			}
		}
		if fastest >= 700*time.Millisecond {
			t.Errorf("the watch was open again after %v at best", fastest)
		}
	})
}

package etcd

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/etcdlock"
	"github.com/dlock-go/dlock/test/harness/proxy"
	"github.com/dlock-go/dlock/test/harness/servers"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/namespace"
)

// storeOver returns a store over a client without keep-alive, which change may modify first. gRPC never
// notices that its connection is dead.
func storeOver(t testing.TB, addr string, change func(*clientv3.Client)) *etcdlock.Store {
	t.Helper()
	client := rawClient(t, "etcd://"+addr)
	if change != nil {
		change(client)
	}
	store, err := etcdlock.New(client, nil)
	if err != nil {
		t.Fatal(err)
	}
	closeAtEnd(t, store)
	return store
}

// TestSilentConnectionIsReplaced: each call of a store whose connection stopped answering is
// answered over a new connection, although the client has no keep-alive.
func TestSilentConnectionIsReplaced(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.Etcd)
	for what, call := range map[string]func(ctx context.Context, store driver.Store, held driver.Grant) error{
		"acquire": func(ctx context.Context, store driver.Store, _ driver.Grant) error {
			_, err := store.Acquire(ctx, request("acquired"))
			return err
		},
		"acquire with a new lease": func(ctx context.Context, store driver.Store, _ driver.Grant) error {
			req := request("long")
			req.TTL = time.Hour
			_, err := store.Acquire(ctx, req)
			return err
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
			held, err := store.Acquire(t.Context(), request("held before "+what))
			if err != nil {
				t.Fatal(err)
			}
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
	held, err := holder.Acquire(t.Context(), request("x"))
	if err != nil {
		t.Fatal(err)
	}
	waiter := dlock.New(storeOver(t, p.Addr(), nil), &dlock.Options{TTL: silentTTL})
	t.Cleanup(func() { _ = waiter.Close() }) // its connection is dead
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	got := make(chan error, 1)
	go func() {
		_, err := waiter.Lock(ctx, "x")
		got <- err
	}()
	eventually(t, "the waiter has a place", func() bool { return waiters(holder, "x") == 1 })
	p.Blackhole()
	if err := holder.Release(t.Context(), held); err != nil {
		t.Fatal(err)
	}
	if err := <-got; err != nil {
		t.Errorf("Lock over a silent connection: %v", err)
	}
}

// TestWatchMovesWithTheConnection: when a silent connection was replaced, watches report
// releases over the new one.
func TestWatchMovesWithTheConnection(t *testing.T) {
	t.Parallel()
	r := newLateRig(t)
	held := r.acquire(r.other, request("x"))
	woken := make(chan struct{}, 1)
	stop, err := r.store.(driver.Watcher).Watch(t.Context(), request("x"), func() {
		select {
		case woken <- struct{}{}:
		default:
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	r.proxy.Blackhole()
	r.acquire(r.store, request("y")) // replaces the connection
	happens(t, woken)                // because a deletion may have been missed
	r.release(r.other, held)
	happens(t, woken)
}

// TestSilentClusterIsDialledAgain: when the connections to all members stopped answering, the store
// dials one of them, and another one if that member is gone.
func TestSilentClusterIsDialledAgain(t *testing.T) {
	t.Parallel()
	cluster := servers.RunEtcdCluster(t, nil)
	var proxies []*proxy.Proxy
	var addrs []string
	for _, member := range cluster.Members {
		p := proxy.Run(t, member.Addr())
		proxies, addrs = append(proxies, p), append(addrs, p.Addr())
	}
	store := storeOver(t, strings.Join(addrs, ","), nil)
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
	eventually(t, "the client is connected to all members", func() bool { return !slices.Contains(connected(), 0) })
	before := connected()
	for _, p := range proxies {
		p.Blackhole()
	}
	acquire("silent")
	dialled := -1
	for i, n := range connected() {
		if n > before[i] {
			dialled = i
		}
	}
	if dialled < 0 {
		t.Fatal("no member was dialled")
	}
	if err := cluster.Members[dialled].Kill(); err != nil {
		t.Fatal(err)
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
	if _, err := store.Acquire(t.Context(), request("before")); err != nil {
		t.Fatal(err)
	}
	p.Blackhole()
	t.Cleanup(p.Reset) // so that Close reaches the server
	ctx, cancel := context.WithTimeout(t.Context(), 4500*time.Millisecond)
	defer cancel()
	_, err := store.Acquire(ctx, request("after"))
	if errors.Is(err, driver.ErrHeld) {
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
	if err := f.lose(server); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := f.bringBack(server); err != nil {
			t.Error(err)
		}
	})
}

// TestWaiterGivesUpWhenTheServerIsGone: Lock returns ErrUnreachable when the server has been
// gone for a TTL.
func TestWaiterGivesUpWhenTheServerIsGone(t *testing.T) {
	t.Parallel()
	for how, fault := range serverGone {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			server := servers.Run(t, servers.Etcd)
			observer := newStore(t, server.URL())
			if _, err := observer.Acquire(t.Context(), request("x")); err != nil {
				t.Fatal(err)
			}
			client := newClient(t, server.URL(), faultTTL)
			gaveUp := make(chan error, 1)
			go func() {
				_, err := client.Lock(t.Context(), "x")
				gaveUp <- err
			}()
			eventually(t, "the waiter has a place", func() bool { return waiters(observer, "x") == 1 })
			fault.begin(t, server)
			select {
			case err := <-gaveUp:
				if !errors.Is(err, dlock.ErrUnreachable) {
					t.Errorf("Lock: %v; want ErrUnreachable", err)
				}
			case <-time.After(limit):
				t.Errorf("Lock still waits after %v; the TTL is %v", limit, faultTTL)
			}
		})
	}
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
			held, err := store.Acquire(t.Context(), request("held"))
			if err != nil {
				t.Fatal(err)
			}
			for _, member := range c.paused {
				serverGone["paused"].begin(t, member)
			}
			type result struct {
				what string
				err  error
			}
			calls := map[string]func() error{
				"Acquire": func() error { _, err := store.Acquire(t.Context(), request("x")); return err },
				"Renew":   func() error { return errors.Join(store.Renew(t.Context(), []driver.Grant{held})...) },
				"Break":   func() error { return store.Break(t.Context(), "held", held.Token) },
				"Find":    func() error { _, _, err := store.Find(t.Context(), "held"); return err },
				"List": func() error {
					for _, err := range store.List(t.Context(), "") {
						return err
					}
					return nil
				},
				"Diagnose": func() error { _, err := store.Diagnose(t.Context()); return err },
				"Watch":    func() error { _, err := store.Watch(t.Context(), request("y"), func() {}); return err },
			}
			results := make(chan result, len(calls))
			for what, call := range calls {
				go func() { results <- result{what, call()} }()
			}
			for deadline := time.After(limit); len(calls) > 0; {
				select {
				case r := <-results:
					delete(calls, r.what)
					// The member that is left opens a watch until it misses the leader.
					opened := where == "no quorum" && r.what == "Watch" && r.err == nil
					if !opened && (!errors.Is(r.err, driver.ErrUnreachable) || errors.Is(r.err, context.Canceled)) {
						t.Errorf("%s: %v; want ErrUnreachable, and no cancellation", r.what, r.err)
					}
				case <-deadline:
					t.Fatalf("%q have not ended within %v", slices.Sorted(maps.Keys(calls)), limit)
				}
			}
		})
	}
}

// TestGoneServerIsNotAnsweredForFromMemory: an attempt of a waiter whose server is gone
// fails within its context, and never with what the store remembers of the holder.
func TestGoneServerIsNotAnsweredForFromMemory(t *testing.T) {
	t.Parallel()
	for how, fault := range serverGone {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			server := servers.Run(t, servers.Etcd)
			store := newStore(t, server.URL())
			if _, err := newStore(t, server.URL()).Acquire(t.Context(), request("x")); err != nil {
				t.Fatal(err)
			}
			watch := func(req driver.Request) {
				t.Helper()
				stop, err := store.(driver.Watcher).Watch(t.Context(), req, func() {})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(stop)
			}
			watch(request("x"))
			req := request("x")
			req.Queue = true
			if _, err := store.Acquire(t.Context(), req); !errors.Is(err, driver.ErrHeld) {
				t.Fatalf("Acquire of a held lock: %v", err)
			}
			asked := time.Now()
			watch(req)
			fault.begin(t, server)
			// What the server said a moment ago may be repeated.
			eventually(t, "the last answer is old", func() bool { return time.Since(asked) > 1500*time.Millisecond })
			for range 3 {
				ctx, cancel := context.WithTimeoutCause(t.Context(), 500*time.Millisecond, driver.ErrUnreachable)
				_, err := store.Acquire(ctx, req)
				cancel()
				if !errors.Is(err, driver.ErrUnreachable) || errors.Is(err, driver.ErrHeld) {
					t.Errorf("an attempt of a waiter: %v; want ErrUnreachable", err)
				}
			}
		})
	}
}

package etcd

import (
	"bytes"
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/etcdlock"
	"github.com/dlock-go/dlock/test/harness/await"
	"github.com/dlock-go/dlock/test/harness/proxy"
	"github.com/dlock-go/dlock/test/harness/servers"
	"github.com/dlock-go/dlock/test/harness/want"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// limit bounds what must happen, on a machine that is busy.
const limit = 30 * time.Second

// longTTL is longer than an election on a busy machine.
const longTTL = 30 * time.Second

// newStore opens a store for a test.
func newStore(t testing.TB, url string) *etcdlock.Store {
	t.Helper()
	return closedAtEnd(t, want.Value(etcdlock.Open(t.Context(), url, nil))(t))
}

func closedAtEnd(t testing.TB, store *etcdlock.Store) *etcdlock.Store {
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return store
}

// storeOver returns a store over a client without keep-alive, which change may modify first. gRPC never
// notices that its connection is dead.
func storeOver(t testing.TB, addr string, change func(*clientv3.Client)) *etcdlock.Store {
	t.Helper()
	client := rawClient(t, "etcd://"+addr)
	if change != nil {
		change(client)
	}
	return closedAtEnd(t, want.Value(etcdlock.New(client, nil))(t))
}

// newClient returns a client over a store of its own. With a long TTL its RequestTimeout is long, too.
func newClient(t testing.TB, url string, ttl time.Duration) *dlock.Client {
	t.Helper()
	client := dlock.New(newStore(t, url), &dlock.Options{TTL: ttl, RequestTimeout: max(2*time.Second, ttl/2)})
	t.Cleanup(func() { _ = client.Close() }) // it may not reach the server any more
	return client
}

// rawClient returns etcd's own client for the servers of a store URL.
func rawClient(t testing.TB, url string) *clientv3.Client {
	t.Helper()
	hosts, _, _ := strings.Cut(strings.TrimPrefix(url, "etcd://"), "/")
	client := want.Value(clientv3.New(clientv3.Config{Endpoints: strings.Split(hosts, ","), Logger: zap.NewNop()}))(t)
	t.Cleanup(func() { _ = client.Close() }) // it is used no more
	return client
}

var (
	sharedMode = driver.Mode{Shared: true}
	two        = driver.Mode{Limit: 2}
)

func request(name string) driver.Request {
	return driver.Request{Name: name, Owner: driver.NewOwner(), TTL: time.Minute}
}

// requestIn is a request in a mode.
func requestIn(mode driver.Mode, name string) driver.Request {
	req := request(name)
	req.Mode = mode
	return req
}

// queued is a request that leaves a place in the queue.
func queued(req driver.Request) driver.Request {
	req.Queue, req.Fair = true, true
	return req
}

// lockAnyhow locks, and tries again while the store cannot be reached.
func lockAnyhow(t testing.TB, client *dlock.Client, name string, opts ...dlock.Option) *dlock.Lease {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	for {
		lease, err := client.Lock(ctx, name, opts...)
		if err == nil {
			return lease
		}
		if !errors.Is(err, dlock.ErrUnreachable) || ctx.Err() != nil {
			t.Fatalf("Lock(%q), tried again and again: %v", name, err)
		}
	}
}

// wantHeld checks that an attempt is refused, because of why.
func wantHeld(t testing.TB, client *dlock.Client, name, why string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	var err error
	for ctx.Err() == nil {
		var lease *dlock.Lease
		if lease, err = client.TryLock(ctx, name); err == nil {
			t.Errorf("%q was granted with token %d: %s", name, lease.Token(), why)
			return
		}
		if errors.Is(err, dlock.ErrHeld) {
			return
		}
	}
	t.Errorf("TryLock(%q): %v; want ErrHeld: %s", name, err, why)
}

// lockLater locks in the background.
func lockLater(t testing.TB, client *dlock.Client, name string, opts ...dlock.Option) <-chan *dlock.Lease {
	got := make(chan *dlock.Lease, 1)
	go func() { got <- lockAnyhow(t, client, name, opts...) }()
	return got
}

// waiters returns how many waiters a lock has, -1 if that is unknown.
func waiters(store driver.Finder, name string) int {
	ctx, cancel := timeout(limit)
	defer cancel()
	info, ok, err := store.Find(ctx, name)
	if !ok || err != nil {
		return -1
	}
	return info.Waiters
}

// first returns the key of a name that was created first.
func first(t testing.TB, raw *clientv3.Client, name string) *mvccpb.KeyValue {
	t.Helper()
	return only(t, raw, name, clientv3.WithFirstCreate()...)
}

// last returns the key of a name that was created last.
func last(t testing.TB, raw *clientv3.Client, name string) *mvccpb.KeyValue {
	t.Helper()
	return only(t, raw, name, clientv3.WithLastCreate()...)
}

func only(t testing.TB, raw *clientv3.Client, name string, opts ...clientv3.OpOption) *mvccpb.KeyValue {
	t.Helper()
	reply, err := raw.Get(t.Context(), name+"/", opts...)
	if err != nil || len(reply.Kvs) != 1 {
		t.Fatalf("the key of %q: %v, %v", name, reply, err)
	}
	return reply.Kvs[0]
}

// keys returns how many keys a name has.
func keys(t testing.TB, raw *clientv3.Client, name string) int64 {
	t.Helper()
	return want.Value(raw.Get(t.Context(), name+"/", clientv3.WithPrefix(), clientv3.WithCountOnly()))(t).Count
}

// rewrite writes a key, as if an attempt were carried out late.
func rewrite(t testing.TB, raw *clientv3.Client, kv *mvccpb.KeyValue) {
	t.Helper()
	want.OK(t, want.Err(raw.Put(t.Context(), string(kv.Key), "", clientv3.WithLease(clientv3.LeaseID(kv.Lease)))))
}

// remove deletes a key, as if a release were carried out late.
func remove(t testing.TB, raw *clientv3.Client, key string) {
	t.Helper()
	want.OK(t, want.Err(raw.Delete(t.Context(), key)))
}

func revokeLeaseOf(t testing.TB, raw *clientv3.Client, kv *mvccpb.KeyValue) {
	t.Helper()
	want.OK(t, want.Err(raw.Revoke(t.Context(), clientv3.LeaseID(kv.Lease))))
}

func hex(id int64) string { return strconv.FormatInt(id, 16) }

// lateRig is a store behind a proxy that can hold a connection back. The store holds the lock kept, so
// that the lease that its locks share goes on.
type lateRig struct {
	t      *testing.T
	server *servers.Server
	raw    *clientv3.Client
	proxy  *proxy.Proxy
	store  *etcdlock.Store // behind the proxy
	other  *etcdlock.Store // not behind it
	kept   driver.Grant
}

func newLateRig(t *testing.T) *lateRig {
	t.Helper()
	return lateRigOn(t, servers.Run(t, servers.Etcd))
}

// onBoth runs a test on a current server and on an old one.
func onBoth(t *testing.T, test func(t *testing.T, r *lateRig)) {
	t.Helper()
	for _, kind := range []*servers.Kind{servers.Etcd, servers.EtcdDebian} {
		t.Run(kind.Name, func(t *testing.T) {
			t.Parallel()
			test(t, lateRigOn(t, servers.Run(t, kind)))
		})
	}
}

func lateRigOn(t *testing.T, server *servers.Server) *lateRig {
	t.Helper()
	p := proxy.Run(t, server.Addr())
	r := &lateRig{t: t, server: server, proxy: p, raw: rawClient(t, server.URL()), other: newStore(t, server.URL())}
	r.store = storeOver(t, p.Addr(), nil)
	r.kept = want.Acquire(t, r.store, request("kept"))
	return r
}

func (r *lateRig) leases() []clientv3.LeaseStatus {
	r.t.Helper()
	return want.Value(r.raw.Leases(r.t.Context()))(r.t).Leases
}

// silenceAt silences the connection just before a request that contains a text passes.
func (r *lateRig) silenceAt(text string) (happened <-chan struct{}) {
	return r.proxy.OnRequest(contains(text), func(*proxy.Conn) { r.proxy.Blackhole() })
}

// happens waits for an event that must happen.
func happens(t testing.TB, happened <-chan struct{}) {
	t.Helper()
	await.Event(t, happened, "the event")
}

func contains(text string) func([]byte) bool {
	return func(sent []byte) bool { return bytes.Contains(sent, []byte(text)) }
}

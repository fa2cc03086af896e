package etcd

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/test/harness/proxy"
	"github.com/dlock-go/dlock/test/harness/servers"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// lateRig is a store behind a proxy that can hold a connection back. The store holds the lock kept, so
// that the lease that its locks share goes on.
type lateRig struct {
	t      *testing.T
	server *servers.Server
	raw    *clientv3.Client
	proxy  *proxy.Proxy
	store  driver.Store // behind the proxy
	other  driver.Store // not behind it
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
	r.kept = r.acquire(r.store, request("kept"))
	return r
}

func (r *lateRig) acquire(store driver.Store, req driver.Request) driver.Grant {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), limit)
	defer cancel()
	grant, err := store.Acquire(ctx, req)
	if err != nil {
		r.t.Fatalf("Acquire(%q): %v", req.Name, err)
	}
	return grant
}

func (r *lateRig) release(store driver.Store, grant driver.Grant) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), limit)
	defer cancel()
	if err := store.Release(ctx, grant); err != nil {
		r.t.Errorf("Release(%q): %v", grant.Name, err)
	}
}

// stillHeld checks that the store still holds the lock.
func (r *lateRig) stillHeld(store driver.Store, grant driver.Grant, when string) {
	r.t.Helper()
	if errs := store.Renew(r.t.Context(), []driver.Grant{grant}); errs != nil {
		r.t.Errorf("Renew(%q) %s: %v", grant.Name, when, errs[0])
	}
}

// keyOf returns the first key in the queue of a name.
func (r *lateRig) keyOf(name string) string {
	r.t.Helper()
	reply, err := r.raw.Get(r.t.Context(), name+"/", clientv3.WithFirstCreate()...)
	if err != nil || len(reply.Kvs) != 1 {
		r.t.Fatalf("the key of %q: %v, %v", name, reply, err)
	}
	return string(reply.Kvs[0].Key)
}

func (r *lateRig) leases() []clientv3.LeaseStatus {
	r.t.Helper()
	reply, err := r.raw.Leases(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	return reply.Leases
}

// silenceAt silences the connection just before a request that contains a text passes.
func (r *lateRig) silenceAt(text string) (happened <-chan struct{}) {
	return r.proxy.OnRequest(contains(text), func(*proxy.Conn) { r.proxy.Blackhole() })
}

// happens waits for an event that must happen.
func happens(t testing.TB, happened <-chan struct{}) {
	t.Helper()
	select {
	case <-happened:
	case <-time.After(limit):
		t.Fatalf("it did not happen within %v", limit)
	}
}

func contains(text string) func([]byte) bool {
	return func(sent []byte) bool { return bytes.Contains(sent, []byte(text)) }
}

// watch makes the owner of a request a waiter.
func (r *lateRig) watch(req driver.Request) {
	r.t.Helper()
	stop, err := r.store.(driver.Watcher).Watch(r.t.Context(), req, func() {})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(stop)
}

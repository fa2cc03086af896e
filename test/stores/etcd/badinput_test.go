package etcd

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/etcdlock"
	"github.com/dlock-go/dlock/test/harness/await"
	"github.com/dlock-go/dlock/test/harness/servers"
	"github.com/dlock-go/dlock/test/harness/want"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
)

// lockOnce opens a store by its URL, and locks and unlocks through it.
func lockOnce(t *testing.T, url string) error {
	t.Helper()
	store, err := open(t.Context(), url)
	if err != nil {
		return err
	}
	defer store.Close()
	client := dlock.New(store, &dlock.Options{RequestTimeout: 5 * time.Second})
	defer client.Close()
	lease, err := client.Lock(t.Context(), "orders")
	if err != nil {
		return err
	}
	return lease.Unlock(t.Context())
}

// failsWith checks that the error contains a text, and not the password.
func failsWith(t *testing.T, err error, want string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("the error is %v; want one that says %q", err, want)
	}
	if err != nil && strings.Contains(err.Error(), "s3cr3t") {
		t.Errorf("the password is in %v", err)
	}
}

const annsPassword = "s3cr3t p@ss/w:rd%#?"

func TestTLSNeedsTheRightCertificates(t *testing.T) {
	t.Parallel()
	server := servers.RunEtcdTLS(t)
	want.OK(t, lockOnce(t, server.SecureURL()))
	findings, err := newStore(t, server.SecureURL()).Diagnose(t.Context())
	if text := fmt.Sprintf("%+v", findings); err != nil || !strings.Contains(text, "The connection is encrypted.") {
		t.Errorf("the diagnosis over TLS is %s, %v", text, err)
	}
	for what, test := range map[string]struct{ query, says string }{
		"no certificate":               {"tls=true&ca=" + url.QueryEscape(server.CAFile), "unreachable"},
		"an unknown authority":         {"tls=true", "certificate"},
		"no TLS":                       {"", "does it want TLS?"},
		"an authority that is no file": {"tls=true&ca=/no/such/file", "ca"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			failsWith(t, lockOnce(t, server.URL()+"?"+test.query), test.says)
		})
	}
	failsWith(t, lockOnce(t, servers.Run(t, servers.Etcd).URL()+"?tls=true"), "does it speak TLS?")
}

// TestFullServerKeepsHeldLocks: a server without space refuses new locks with the reason, and
// leaves nothing behind. A lock that is held can be renewed and released.
func TestFullServerKeepsHeldLocks(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.Etcd, "--quota-backend-bytes", "200000")
	raw := rawClient(t, server.URL())
	client := dlock.New(newStore(t, server.URL()), &dlock.Options{TTL: faultTTL, RequestTimeout: 5 * time.Second}) // a busy disk is slow
	t.Cleanup(func() { _ = client.Close() })
	kept := lockAnyhow(t, client, "kept")
	fill := strings.Repeat("x", 10_000)
	var err error
	for i := 0; err == nil; i++ {
		_, err = raw.Put(t.Context(), fmt.Sprint("fill", i), fill)
	}
	if !errors.Is(err, rpctypes.ErrNoSpace) {
		t.Fatalf("filling the server: %v", err)
	}
	failsWith(t, want.Err(newClient(t, server.URL(), longTTL).Lock(t.Context(), "refused")), "no space")
	_, err = client.Lock(t.Context(), "refused", dlock.WithFair())
	failsWith(t, err, "no space")
	if errors.Is(err, dlock.ErrUnreachable) {
		t.Errorf("%v; want an error that ends the wait", err)
	}
	findings, err := newStore(t, server.URL()).Diagnose(t.Context())
	if err != nil || !hasProblem(findings, "alarms") {
		t.Errorf("Diagnose finds %+v, %v", findings, err)
	}
	renewals, start := requests(t, server, "LeaseKeepAlive"), time.Now()
	await.Until(t, "the lock is renewed for longer than its TTL", func() bool {
		return requests(t, server, "LeaseKeepAlive") > renewals && time.Since(start) > faultTTL
	})
	if err := kept.Context().Err(); err != nil {
		t.Errorf("a held lock was lost: %v", err)
	}
	want.Unlock(t, kept)
	if n := keys(t, raw, "refused"); n != 0 {
		t.Errorf("%d keys are left behind", n)
	}
}

// TestUnreachableServerIsReportedSoon: an address where nothing listens is reported soon by every
// call, and Open returns when its context ends.
func TestUnreachableServerIsReportedSoon(t *testing.T) {
	t.Parallel()
	client := newClient(t, "etcd://127.0.0.1:1", 4*limit) // its RequestTimeout is 2*limit
	for _, name := range []string{"n", "n", "m"} {
		start := time.Now()
		if _, err := client.TryLock(t.Context(), name); !errors.Is(err, dlock.ErrUnreachable) || !strings.Contains(err.Error(), "refused") {
			t.Errorf("TryLock: %v; want ErrUnreachable that says refused", err)
		}
		if took := time.Since(start); took > limit/2 {
			t.Errorf("TryLock took %v; want about a second", took)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	start := time.Now()
	if _, err := open(ctx, "etcd://ann:s3cr3t@127.0.0.1:1"); err == nil {
		t.Error("Open succeeded although no server could check the password")
	}
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("Open returned %v after the end of its context", took)
	}
}

// TestNoSpaceAfterTheWrite: a server whose space runs out while it carries out a transaction answers
// that it has no space left, although it has written the key. The lock is not left behind, although
// its etcd lease lives on.
func TestNoSpaceAfterTheWrite(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.Etcd)
	var full atomic.Bool
	late := func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		err := invoke(ctx, method, req, reply, cc, opts...)
		if err == nil && full.Load() && method == "/etcdserverpb.KV/Txn" {
			return rpctypes.ErrGRPCNoSpace
		}
		return err
	}
	through := want.Value(clientv3.New(clientv3.Config{
		Endpoints: []string{server.Addr()}, DialOptions: []grpc.DialOption{grpc.WithUnaryInterceptor(late)},
	}))(t)
	defer through.Close()
	store := want.Value(etcdlock.New(through, nil))(t)
	defer store.Close()
	client := dlock.New(store, nil)
	defer client.Close()
	raw := rawClient(t, server.URL())
	kept := lockAnyhow(t, client, "kept")
	for _, opts := range [][]dlock.Option{nil, {dlock.WithFair()}} {
		full.Store(true)
		_, err := client.Lock(t.Context(), "refused", opts...)
		failsWith(t, err, "no space")
		full.Store(false)
		await.Until(t, "the key is deleted", func() bool { return keys(t, raw, "refused") == 0 })
	}
	want.Unlock(t, kept)
}

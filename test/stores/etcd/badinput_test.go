package etcd

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/test/harness/servers"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
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
	if err := lockOnce(t, server.SecureURL()); err != nil {
		t.Errorf("with a certificate: %v", err)
	}
	findings, err := newStore(t, server.SecureURL()).(driver.Diagnoser).Diagnose(t.Context())
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
	other := newClient(t, server.URL(), longTTL)
	_, err = other.Lock(t.Context(), "refused")
	failsWith(t, err, "no space")
	_, err = client.Lock(t.Context(), "refused", dlock.WithFair())
	failsWith(t, err, "no space")
	if errors.Is(err, dlock.ErrUnreachable) {
		t.Errorf("%v; want an error that ends the wait", err)
	}
	findings, err := newStore(t, server.URL()).(driver.Diagnoser).Diagnose(t.Context())
	if err != nil || !hasProblem(findings, "alarms") {
		t.Errorf("Diagnose finds %+v, %v", findings, err)
	}
	renewals, start := requests(t, server, "LeaseKeepAlive"), time.Now()
	eventually(t, "the lock is renewed for longer than its TTL", func() bool {
		return requests(t, server, "LeaseKeepAlive") > renewals && time.Since(start) > faultTTL
	})
	if err := kept.Context().Err(); err != nil {
		t.Errorf("a held lock was lost: %v", err)
	}
	unlock(t, kept)
	left, err := raw.Get(t.Context(), "refused/", clientv3.WithPrefix())
	if err != nil || left.Count != 0 {
		t.Errorf("left behind: %v, %v", left, err)
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

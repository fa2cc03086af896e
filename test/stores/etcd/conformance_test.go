package etcd

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/dlock-go/dlock/drivertest"
	"github.com/dlock-go/dlock/test/harness/bundle"
	"github.com/dlock-go/dlock/test/harness/servers"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// kitTTL is the shortest that etcd grants.
const kitTTL = 2 * time.Second

// TestConformance runs the kit on a current and on an old server, and on a cluster.
func TestConformance(t *testing.T) {
	for name, start := range map[string]func(testing.TB) string{
		"single":  func(t testing.TB) string { return servers.URL(t, servers.Etcd) },
		"debian":  func(t testing.TB) string { return servers.URL(t, servers.EtcdDebian) },
		"cluster": func(t testing.TB) string { return servers.RunEtcdCluster(t, nil).URL() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conform(t, start(t)+"/conformance")
		})
	}
}

func conform(t *testing.T, url string) {
	t.Helper()
	raw := rawClient(t, url)
	s := bundle.Store{URL: url, Open: open, Leftovers: func(ctx context.Context) ([]string, error) { return leftovers(ctx, raw) }}
	if endpoints := raw.Endpoints(); len(endpoints) == 1 {
		s.Addr = endpoints[0]
	}
	s.Conform(t, drivertest.Config{TTL: kitTTL, Parallel: 16})
}

// leftovers returns all keys and all leases.
func leftovers(ctx context.Context, raw *clientv3.Client) (left []string, err error) {
	keys, err := raw.Get(ctx, "", clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		return nil, err
	}
	for _, kv := range keys.Kvs {
		left = append(left, fmt.Sprintf("key %q", kv.Key))
	}
	leases, err := raw.Leases(ctx)
	if err != nil {
		return nil, err
	}
	for _, lease := range leases.Leases {
		left = append(left, fmt.Sprintf("lease %x", lease.ID))
	}
	return left, nil
}

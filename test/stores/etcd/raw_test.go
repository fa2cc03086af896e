package etcd

import (
	"strconv"
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// rawClient returns etcd's own client for the servers of a store URL.
func rawClient(t testing.TB, url string) *clientv3.Client {
	t.Helper()
	hosts, _, _ := strings.Cut(strings.TrimPrefix(url, "etcd://"), "/")
	client, err := clientv3.New(clientv3.Config{Endpoints: strings.Split(hosts, ","), Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() }) // it is used no more
	return client
}

// revokeLeaseOf revokes the lease of the first key that begins with prefix.
func revokeLeaseOf(t testing.TB, raw *clientv3.Client, prefix string) {
	t.Helper()
	revoke(t, raw, prefix, clientv3.WithFirstCreate()...)
}

// revokeLastOf revokes the lease of the last key that begins with prefix.
func revokeLastOf(t testing.TB, raw *clientv3.Client, prefix string) {
	t.Helper()
	revoke(t, raw, prefix, clientv3.WithLastCreate()...)
}

func revoke(t testing.TB, raw *clientv3.Client, prefix string, opts ...clientv3.OpOption) {
	t.Helper()
	reply, err := raw.Get(t.Context(), prefix, opts...)
	if err != nil || len(reply.Kvs) != 1 {
		t.Fatalf("the key of %q: %v, %v", prefix, reply, err)
	}
	if _, err := raw.Revoke(t.Context(), clientv3.LeaseID(reply.Kvs[0].Lease)); err != nil {
		t.Fatal(err)
	}
}

func hex(id int64) string { return strconv.FormatInt(id, 16) }

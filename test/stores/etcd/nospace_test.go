package etcd

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/etcdlock"
	"github.com/dlock-go/dlock/test/harness/servers"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
)

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
	through, err := clientv3.New(clientv3.Config{Endpoints: []string{server.Addr()}, DialOptions: []grpc.DialOption{grpc.WithUnaryInterceptor(late)}})
	if err != nil {
		t.Fatal(err)
	}
	defer through.Close()
	store, err := etcdlock.New(through, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	client := dlock.New(store, nil)
	defer client.Close()
	raw := rawClient(t, server.URL())
	kept := lockAnyhow(t, client, "kept")
	for _, opts := range [][]dlock.Option{nil, {dlock.WithFair()}} {
		full.Store(true)
		_, err = client.Lock(t.Context(), "refused", opts...)
		failsWith(t, err, "no space")
		full.Store(false)
		eventually(t, "the key is deleted", func() bool {
			left, err := raw.Get(t.Context(), "refused/", clientv3.WithPrefix())
			return err == nil && left.Count == 0
		})
	}
	unlock(t, kept)
}

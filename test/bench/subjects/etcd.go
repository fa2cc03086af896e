package subjects

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/etcdlock"
	"github.com/dlock-go/dlock/test/harness/servers"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	recipe "go.etcd.io/etcd/client/v3/experimental/recipes"
	"go.uber.org/zap"
)

var etcdStore = Store{
	Name:      "etcd",
	Open:      openEtcd,
	Serve:     serveEtcd,
	Processes: true,
	Held:      10_000, // each is a write of its own
	Subjects: append([]Subject{
		{Name: "raw", Open: openRawEtcd},
		direct("store", openEtcd, millisecond).only("solo", "many"),
		library("dlock", openEtcd).modes(),
		library("dlock", openEtcd).modes().exclusive(),
		Subject{Name: "concurrency", Open: openConcurrency}.shared(),
	}, commands(etcdURL, flockCommand, etcdctlCommand)...),
}

func dialEtcd(addrs []string) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{Endpoints: addrs, Logger: zap.NewNop()})
}

const etcdURL = "etcd://SERVER"

var openEtcd = byURL(etcdlock.Open, etcdURL, nil)

// openRawEtcd opens the floor: a put if the key does not exist, and a delete.
func openRawEtcd(ctx context.Context, at Place) (*Client, error) {
	c, err := dialEtcd(at.Addrs)
	if err != nil {
		return nil, err
	}
	lease, err := c.Grant(ctx, int64(time.Hour/time.Second))
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	newWorker := func(name string) Worker {
		free := clientv3.Compare(clientv3.CreateRevision(name), "=", 0)
		put := clientv3.OpPut(name, "", clientv3.WithLease(lease.ID))
		return Worker{
			Lock: polling(func(ctx context.Context) (bool, error) {
				reply, err := c.Txn(ctx).If(free).Then(put).Commit()
				return err == nil && reply.Succeeded, err
			}),
			Unlock: func(ctx context.Context) error {
				reply, err := c.Delete(ctx, name)
				return released(err == nil && reply.Deleted > 0, err)
			},
		}
	}
	return &Client{Worker: workers(newWorker), Close: c.Close}, nil
}

// openConcurrency opens etcd's own Mutex, and the RWMutex of etcd's recipes. A
// session excludes other sessions but not itself, so every goroutine has a
// session, which ends with the client, and its lease when it expires.
func openConcurrency(_ context.Context, at Place) (*Client, error) {
	c, err := dialEtcd(at.Addrs)
	if err != nil {
		return nil, err
	}
	newWorker := func(_ context.Context, want Want) (Worker, error) {
		session, err := concurrency.NewSession(c, concurrency.WithTTL(int(dlock.DefaultTTL/time.Second)))
		if err != nil {
			return Worker{}, err
		}
		if !want.ReadWrite {
			mutex := concurrency.NewMutex(session, want.Name)
			return Worker{mutex.Lock, mutex.Unlock}, nil
		}
		mutex := recipe.NewRWMutex(session, want.Name) // does not support contexts
		lock, unlock := mutex.Lock, mutex.Unlock
		if want.Shared {
			lock, unlock = mutex.RLock, mutex.RUnlock
		}
		return Worker{
			Lock:   func(context.Context) error { return lock() },
			Unlock: func(context.Context) error { return unlock() },
		}, nil
	}
	return &Client{Worker: newWorker, Close: c.Close}, nil
}

func serveEtcd(context.Context) (*Servers, error) {
	s, err := start(servers.Etcd, 1)
	if err != nil {
		return nil, err
	}
	control, err := dialEtcd(s.Addrs())
	if err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	s.disconnect = control.Close
	s.Empty = func(ctx context.Context) error {
		_, err := control.Delete(ctx, "", clientv3.WithPrefix())
		return err
	}
	s.count = func(ctx context.Context) (map[string]uint64, error) { return grpcCallsOf(ctx, s.Addrs()[0]) }
	return s, nil
}

var grpcCalls = regexp.MustCompile(`(?m)^grpc_server_started_total\{grpc_method="(\w+)",\S* (\S+)$`)

func grpcCallsOf(ctx context.Context, addr string) (map[string]uint64, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	reply, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer reply.Body.Close()
	text, err := io.ReadAll(reply.Body)
	if err != nil {
		return nil, err
	}
	calls := make(map[string]uint64)
	for _, found := range grpcCalls.FindAllSubmatch(text, -1) {
		n, err := strconv.ParseFloat(string(found[2]), 64)
		if err != nil {
			return nil, err
		}
		calls[string(found[1])] += uint64(n)
	}
	if len(calls) == 0 {
		return nil, fmt.Errorf("the metrics of etcd do not tell what was done: %d bytes", len(text))
	}
	return calls, nil
}

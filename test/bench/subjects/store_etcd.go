package subjects

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
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
		{Name: "raw", Open: onEtcd(newRawEtcd)},
		direct("store", openEtcd, millisecond).only("solo", "many"),
		library("dlock", openEtcd).modes(),
		library("dlock", openEtcd).modes().exclusive(),
		Subject{Name: "concurrency", Open: onEtcd(newConcurrency)}.shared(),
	}, commands(func(dir string) (string, error) {
		addr, err := os.ReadFile(filepath.Join(dir, etcdAddressFile))
		return "etcd://" + string(addr), err
	}, flockCommand, etcdctlCommand)...),
}

// dialEtcd returns a client for the server that prepare wrote into dir.
func dialEtcd(dir string) (*clientv3.Client, error) {
	addr, err := os.ReadFile(filepath.Join(dir, etcdAddressFile))
	if err != nil {
		return nil, err
	}
	return clientv3.New(clientv3.Config{Endpoints: []string{string(addr)}, Logger: zap.NewNop()})
}

func openEtcd(dir string) (func(context.Context) (opened, error), error) {
	return func(context.Context) (opened, error) {
		c, err := dialEtcd(dir)
		if err != nil {
			return opened{}, err
		}
		s, err := etcdlock.New(c, nil)
		if err != nil {
			return opened{}, errors.Join(err, c.Close())
		}
		return opened{s, c.Close}, nil
	}, nil
}

// onEtcd opens a subject over etcd's client.
func onEtcd(wrap func(context.Context, *clientv3.Client) (Client, error)) func(string) (func(context.Context) (Client, error), error) {
	return func(dir string) (func(context.Context) (Client, error), error) {
		return func(ctx context.Context) (Client, error) {
			c, err := dialEtcd(dir)
			if err != nil {
				return nil, err
			}
			wrapped, err := wrap(ctx, c)
			if err != nil {
				return nil, errors.Join(err, c.Close())
			}
			return wrapped, nil
		}, nil
	}
}

// etcdClient is the common part of the subjects over etcd's client.
type etcdClient struct{ etcd *clientv3.Client }

func (c *etcdClient) Commands() (uint64, bool) { return 0, false } // counted by the server
func (c *etcdClient) Close() error             { return c.etcd.Close() }

// rawEtcd is the floor: a put if the key does not exist, and a delete.
type rawEtcd struct {
	etcdClient
	lease clientv3.LeaseID
}

func newRawEtcd(ctx context.Context, c *clientv3.Client) (Client, error) {
	lease, err := c.Grant(ctx, int64(time.Hour/time.Second))
	if err != nil {
		return nil, err
	}
	return &rawEtcd{etcdClient{c}, lease.ID}, nil
}

func (c *rawEtcd) Worker(_ context.Context, name string) (Worker, error) {
	return &rawEtcdWorker{
		etcd: c.etcd,
		name: name,
		free: clientv3.Compare(clientv3.CreateRevision(name), "=", 0),
		put:  clientv3.OpPut(name, "", clientv3.WithLease(c.lease)),
	}, nil
}

type rawEtcdWorker struct {
	etcd *clientv3.Client
	name string
	free clientv3.Cmp
	put  clientv3.Op
}

func (w *rawEtcdWorker) Lock(ctx context.Context) error {
	for {
		// A request that goes on after its caller left would lock for nobody.
		reply, err := w.etcd.Txn(context.WithoutCancel(ctx)).If(w.free).Then(w.put).Commit()
		if err != nil || reply.Succeeded {
			return err
		}
		if err := millisecond(ctx); err != nil {
			return err
		}
	}
}

func (w *rawEtcdWorker) Unlock(ctx context.Context) error {
	reply, err := w.etcd.Delete(ctx, w.name)
	if err == nil && reply.Deleted == 0 {
		return driver.ErrNotHeld
	}
	return err
}

// concurrencyClient is etcd's own Mutex, and the RWMutex of etcd's recipes. A session
// excludes other sessions but not itself, so every goroutine has a session.
type concurrencyClient struct{ etcdClient }

func newConcurrency(_ context.Context, c *clientv3.Client) (Client, error) {
	return &concurrencyClient{etcdClient{c}}, nil
}

func (c *concurrencyClient) Worker(_ context.Context, name string) (Worker, error) {
	session, err := c.session()
	if err != nil {
		return nil, err
	}
	return &concurrencyWorker{concurrency.NewMutex(session, name)}, nil
}

// session returns a session that ends with the client, and its lease when it expires.
func (c *concurrencyClient) session() (*concurrency.Session, error) {
	return concurrency.NewSession(c.etcd, concurrency.WithTTL(int(dlock.DefaultTTL/time.Second)))
}

// ModeWorker is for shared and exclusive locks: there are no semaphores.
func (c *concurrencyClient) ModeWorker(_ context.Context, name string, mode driver.Mode) (Worker, error) {
	session, err := c.session()
	if err != nil {
		return nil, err
	}
	mutex := recipe.NewRWMutex(session, name)
	if mode.Shared {
		return &recipeWorker{mutex.RLock, mutex.RUnlock}, nil
	}
	return &recipeWorker{mutex.Lock, mutex.Unlock}, nil
}

// recipeWorker calls a lock that does not support contexts.
type recipeWorker struct{ lock, unlock func() error }

func (w *recipeWorker) Lock(context.Context) error   { return w.lock() }
func (w *recipeWorker) Unlock(context.Context) error { return w.unlock() }

type concurrencyWorker struct{ mutex *concurrency.Mutex }

func (w *concurrencyWorker) Lock(ctx context.Context) error   { return w.mutex.Lock(ctx) }
func (w *concurrencyWorker) Unlock(ctx context.Context) error { return w.mutex.Unlock(ctx) }

// etcdServer is the server of the etcd cases.
type etcdServer struct {
	server  *servers.Server
	control *clientv3.Client
}

func serveEtcd(context.Context) (Served, error) {
	server, err := servers.Start(servers.Etcd)
	if err != nil {
		return nil, err
	}
	control, err := clientv3.New(clientv3.Config{Endpoints: []string{server.Addr()}, Logger: zap.NewNop()})
	if err != nil {
		return nil, errors.Join(err, server.Stop())
	}
	return &etcdServer{server, control}, nil
}

func (s *etcdServer) Stop() error { return errors.Join(s.control.Close(), s.server.Stop()) }

const etcdAddressFile = "etcd"

func (s *etcdServer) Prepare(ctx context.Context, dir string) error {
	if _, err := s.control.Delete(ctx, "", clientv3.WithPrefix()); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, etcdAddressFile), []byte(s.server.Addr()), 0o600)
}

var (
	grpcCalls  = regexp.MustCompile(`(?m)^grpc_server_started_total\{grpc_method="(\w+)",\S* (\S+)$`)
	processCPU = regexp.MustCompile(`(?m)^process_cpu_seconds_total (\S+)$`)
)

func (s *etcdServer) Done(ctx context.Context) (Work, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.server.Addr()+"/metrics", nil)
	if err != nil {
		return Work{}, err
	}
	reply, err := http.DefaultClient.Do(request)
	if err != nil {
		return Work{}, err
	}
	defer reply.Body.Close()
	text, err := io.ReadAll(reply.Body)
	if err != nil {
		return Work{}, err
	}
	all := Work{Commands: make(map[string]uint64)}
	for _, found := range grpcCalls.FindAllSubmatch(text, -1) {
		calls, err := strconv.ParseFloat(string(found[2]), 64)
		if err != nil {
			return Work{}, err
		}
		all.Commands[string(found[1])] += uint64(calls)
	}
	cpu := processCPU.FindSubmatch(text)
	if cpu == nil || len(all.Commands) == 0 {
		return Work{}, fmt.Errorf("the metrics of etcd do not tell what was done: %d bytes", len(text))
	}
	seconds, err := strconv.ParseFloat(string(cpu[1]), 64)
	all.CPU = time.Duration(seconds * float64(time.Second))
	return all, err
}

// Listen observes nothing: every executed call is a call of a client.
func (s *etcdServer) Listen(context.Context) (stop func() (map[string]float64, error), err error) {
	return func() (map[string]float64, error) { return nil, nil }, nil
}

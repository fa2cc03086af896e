package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/etcdlock"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"
)

var etcdStore = store{
	name:      "etcd",
	open:      openEtcd,
	serve:     serveEtcd,
	processes: true,
	held:      10_000, // each is a write of its own
	subjects: []subject{
		{name: "raw", open: onEtcd(newRawEtcd)},
		direct("store", openEtcd, millisecond).only("solo", "many"),
		library("dlock", openEtcd),
		{name: "concurrency", open: onEtcd(newConcurrency)},
	},
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
func onEtcd(wrap func(context.Context, *clientv3.Client) (client, error)) func(string) (func(context.Context) (client, error), error) {
	return func(dir string) (func(context.Context) (client, error), error) {
		return func(ctx context.Context) (client, error) {
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

func (c *etcdClient) commands() (uint64, bool) { return 0, false } // counted by the server
func (c *etcdClient) close() error             { return c.etcd.Close() }

// rawEtcd is the floor: a put if the key does not exist, and a delete.
type rawEtcd struct {
	etcdClient
	lease clientv3.LeaseID
}

func newRawEtcd(ctx context.Context, c *clientv3.Client) (client, error) {
	lease, err := c.Grant(ctx, int64(time.Hour/time.Second))
	if err != nil {
		return nil, err
	}
	return &rawEtcd{etcdClient{c}, lease.ID}, nil
}

func (c *rawEtcd) worker(_ context.Context, name string) (worker, error) {
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

func (w *rawEtcdWorker) lock(ctx context.Context) error {
	for {
		reply, err := w.etcd.Txn(ctx).If(w.free).Then(w.put).Commit()
		if err != nil || reply.Succeeded {
			return err
		}
		if err := millisecond(ctx); err != nil {
			return err
		}
	}
}

func (w *rawEtcdWorker) unlock(ctx context.Context) error {
	reply, err := w.etcd.Delete(ctx, w.name)
	if err == nil && reply.Deleted == 0 {
		return driver.ErrNotHeld
	}
	return err
}

// concurrencyClient is etcd's own Mutex. A session excludes other sessions but
// not itself, so every goroutine has a session.
type concurrencyClient struct{ etcdClient }

func newConcurrency(_ context.Context, c *clientv3.Client) (client, error) {
	return &concurrencyClient{etcdClient{c}}, nil
}

func (c *concurrencyClient) worker(_ context.Context, name string) (worker, error) {
	// The session ends with the client, and its lease when it expires.
	session, err := concurrency.NewSession(c.etcd, concurrency.WithTTL(int(dlock.DefaultTTL/time.Second)))
	if err != nil {
		return nil, err
	}
	return &concurrencyWorker{concurrency.NewMutex(session, name)}, nil
}

type concurrencyWorker struct{ mutex *concurrency.Mutex }

func (w *concurrencyWorker) lock(ctx context.Context) error   { return w.mutex.Lock(ctx) }
func (w *concurrencyWorker) unlock(ctx context.Context) error { return w.mutex.Unlock(ctx) }

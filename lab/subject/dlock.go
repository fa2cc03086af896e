package subject

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/etcdlock"
	"github.com/dlock-go/dlock/memcachelock"
	"github.com/dlock-go/dlock/redislock"
	"github.com/dlock-go/dlock/redislock/redlock"
	"github.com/dlock-go/dlock/sqllock"
	"github.com/dlock-go/dlock/sqlsession"
	"github.com/dlock-go/dlock/zklock"
)

// Dlock returns the name of the subject that is dlock over a store.
func Dlock(store string) string { return store + "/dlock" }

var dlocks = func() (all []Subject) {
	for _, store := range []string{"redis", "sentinel", "cluster", "redlock", "etcd", "zookeeper", "memcached", "mysql", "postgres", "forupdate", "sqlite"} {
		all = append(all, Subject{Dlock(store), Ours, "dlock with its default settings", dlockWith("")})
	}
	for _, store := range []string{"redis", "etcd", "zookeeper", "postgres"} {
		all = append(all, Subject{store + "/dlock-fair", Ours, "dlock WithFair", dlockWith("", dlock.WithFair())})
	}
	return append(all, Subject{"sentinel/dlock-wait", Ours, "dlock that wants the acknowledgement of a replica (replicas=1)", dlockWith("?replicas=1")})
}()

// dlockWith opens dlock with a parameter of the URL and with options of Lock.
func dlockWith(query string, opts ...dlock.Option) func(ctx context.Context, c Config) (Locker, error) {
	return func(ctx context.Context, c Config) (Locker, error) {
		store, err := OpenStore(ctx, c.URL+query)
		if err != nil {
			return nil, err
		}
		return &dlockLocker{client: dlock.New(store, nil), store: store, name: c.Name, opts: append(opts, dlock.WithTTL(c.TTL))}, nil
	}
}

// OpenStore opens the store of dlock with that URL.
func OpenStore(ctx context.Context, url string) (driver.Store, error) {
	scheme, _, _ := strings.Cut(url, "://")
	switch scheme, _, _ = strings.Cut(scheme, "+"); scheme {
	case "redis":
		return redislock.Open(ctx, url, nil)
	case "redlock":
		return redlock.Open(ctx, url, &redlock.Options{MemberTimeout: redlockTimeout})
	case "etcd":
		return etcdlock.Open(ctx, url, nil)
	case "zookeeper":
		return zklock.Open(ctx, url, nil)
	case "memcached":
		return memcachelock.Open(ctx, url, nil)
	case "mysql", "postgres", "sqlite":
		if strings.Contains(url, "scheme=forupdate") || strings.Contains(url, "scheme=session") {
			return sqlsession.Open(ctx, url, nil)
		}
		return sqllock.Open(ctx, url, nil)
	}
	return nil, fmt.Errorf("no store has the scheme %q", scheme)
}

// busyTimeout is how long dlock waits for an answer where the machine is busy with an experiment.
const busyTimeout = 10 * time.Second

// redlockTimeout is how long Redlock waits for a member, on a busy machine.
const redlockTimeout = 200 * time.Millisecond

type dlockLocker struct {
	client *dlock.Client
	store  driver.Store
	name   string
	opts   []dlock.Option
	blind  bool // the holder does not learn its token
}

func (l *dlockLocker) Lock(ctx context.Context) (Held, error) {
	lease, err := l.client.Lock(ctx, l.name, l.opts...)
	if err != nil {
		return nil, err
	}
	h := held{lease.Unlock, alive(lease.Context()), lease.Token()}
	if l.blind {
		h.token = 0
	}
	return h, nil
}

// LockAll implements BatchLocker.
func (l *dlockLocker) LockAll(ctx context.Context, names []string) (Held, error) {
	leases, err := l.client.LockAll(ctx, names, l.opts...)
	if err != nil {
		return nil, err
	}
	return held{leases.Unlock, alive(leases.Context()), leases.Token(names[0])}, nil
}

// Close releases the locks and closes the store.
func (l *dlockLocker) Close() error { return errors.Join(l.client.Close(), l.store.Close()) }

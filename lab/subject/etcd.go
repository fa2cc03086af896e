package subject

import (
	"context"
	"strconv"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"
)

var etcdSubjects = []Subject{
	{"etcd/lease-only", Wrong, "the key has a lease, and the holder does not look whether the lease still exists", openEtcdMutex(false)},
	{"etcd/waits-blindly", Wrong, "a waiter that does not look, when its turn comes, whether its own key still exists", openEtcdBlind},
	{"etcd/concurrency", Peer, "etcd's own Mutex; its users look at the session's Done", openEtcdMutex(true)},
}

func etcdSession(c Config) (*concurrency.Session, error) {
	endpoints := strings.Split(strings.TrimPrefix(c.URL, "etcd://"), ",")
	client, err := clientv3.New(clientv3.Config{Endpoints: endpoints, Logger: zap.NewNop(), DialTimeout: 5 * time.Second})
	if err != nil {
		return nil, err
	}
	return newSession(client, c)
}

func newSession(client *clientv3.Client, c Config) (*concurrency.Session, error) {
	return concurrency.NewSession(client, concurrency.WithTTL(int(max(c.TTL, 2*time.Second)/time.Second)))
}

// openEtcdBlind waits until no key is older than its own.
func openEtcdBlind(_ context.Context, c Config) (Locker, error) {
	session, err := etcdSession(c)
	return lockFunc(func(ctx context.Context) (Held, error) {
		etcd, prefix := session.Client(), c.Name+"/"
		key := prefix + strconv.FormatInt(int64(session.Lease()), 16)
		put, err := etcd.Put(ctx, key, "", clientv3.WithLease(session.Lease()))
		if err != nil {
			return nil, err
		}
		older := append(clientv3.WithFirstCreate(), clientv3.WithMaxCreateRev(put.Header.Revision-1))
		err = pollLock(ctx, func() (bool, error) {
			found, err := etcd.Get(ctx, prefix, older...)
			return err == nil && len(found.Kvs) == 0, err
		})
		return held{unlock: func(ctx context.Context) error {
			_, err := etcd.Delete(ctx, key)
			return err
		}}, err
	}), err
}

// openEtcdMutex locks with etcd's Mutex. Its lock calls do not overlap.
func openEtcdMutex(looks bool) func(ctx context.Context, c Config) (Locker, error) {
	return func(_ context.Context, c Config) (Locker, error) {
		session, err := etcdSession(c)
		return lockFunc(func(ctx context.Context) (Held, error) {
			if ended(session) {
				next, err := newSession(session.Client(), c)
				if err != nil {
					return nil, err
				}
				session = next
			}
			own, mutex := session, concurrency.NewMutex(session, c.Name)
			if err := mutex.Lock(ctx); err != nil {
				return nil, err
			}
			believes := func() bool { return !looks || !ended(own) }
			return held{mutex.Unlock, believes, uint64(mutex.Header().Revision)}, nil
		}), err
	}
}

// ended reports whether the client knows that the session has ended.
func ended(session *concurrency.Session) bool {
	select {
	case <-session.Done():
		return true
	default:
		return false
	}
}

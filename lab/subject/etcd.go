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

func openEtcdMutex(looks bool) func(ctx context.Context, c Config) (Locker, error) {
	return func(ctx context.Context, c Config) (Locker, error) {
		session, err := etcdSession(c)
		return &etcdLocker{session: session, config: c, looks: looks}, err
	}
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

func openEtcdBlind(_ context.Context, c Config) (Locker, error) {
	session, err := etcdSession(c)
	return &etcdBlind{session, c}, err
}

// etcdBlind waits until no key is older than its own.
type etcdBlind struct {
	session *concurrency.Session
	config  Config
}

func (l *etcdBlind) Lock(ctx context.Context) (Held, error) {
	etcd, prefix := l.session.Client(), l.config.Name+"/"
	key := prefix + strconv.FormatInt(int64(l.session.Lease()), 16)
	put, err := etcd.Put(ctx, key, "", clientv3.WithLease(l.session.Lease()))
	if err != nil {
		return nil, err
	}
	older := append(clientv3.WithFirstCreate(), clientv3.WithMaxCreateRev(put.Header.Revision-1))
	err = pollLock(ctx, func() (bool, error) {
		found, err := etcd.Get(ctx, prefix, older...)
		return err == nil && len(found.Kvs) == 0, err
	})
	if err != nil {
		return nil, err
	}
	return etcdBlindHeld{l, key}, nil
}

type etcdBlindHeld struct {
	*etcdBlind
	key string
}

func (h etcdBlindHeld) Believes() bool { return true }
func (h etcdBlindHeld) Token() uint64  { return 0 }

func (h etcdBlindHeld) Unlock(ctx context.Context) error {
	_, err := h.session.Client().Delete(ctx, h.key)
	return err
}

// etcdLocker locks with etcd's Mutex. Its lock calls do not overlap.
type etcdLocker struct {
	session *concurrency.Session
	config  Config
	looks   bool
}

func (l *etcdLocker) Lock(ctx context.Context) (Held, error) {
	if ended(l.session) {
		session, err := newSession(l.session.Client(), l.config)
		if err != nil {
			return nil, err
		}
		l.session = session
	}
	mutex := concurrency.NewMutex(l.session, l.config.Name)
	if err := mutex.Lock(ctx); err != nil {
		return nil, err
	}
	return etcdHeld{mutex, l.session, l.looks}, nil
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

type etcdHeld struct {
	mutex   *concurrency.Mutex
	session *concurrency.Session
	looks   bool
}

func (h etcdHeld) Believes() bool                   { return !h.looks || !ended(h.session) }
func (h etcdHeld) Token() uint64                    { return uint64(h.mutex.Header().Revision) }
func (h etcdHeld) Unlock(ctx context.Context) error { return h.mutex.Unlock(ctx) }

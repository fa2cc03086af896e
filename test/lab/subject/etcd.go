package subject

import (
	"context"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"
)

var etcdSubjects = []Subject{
	{"etcd/lease-only", Wrong, "the key has a lease, and the holder does not look whether the lease still exists", openEtcdMutex(false)},
	{"etcd/concurrency", Peer, "etcd's own Mutex; its users look at the session's Done", openEtcdMutex(true)},
}

func openEtcdMutex(looks bool) func(ctx context.Context, c Config) (Locker, error) {
	return func(ctx context.Context, c Config) (Locker, error) {
		endpoints := strings.Split(strings.TrimPrefix(c.URL, "etcd://"), ",")
		client, err := clientv3.New(clientv3.Config{Endpoints: endpoints, Logger: zap.NewNop(), DialTimeout: 5 * time.Second})
		if err != nil {
			return nil, err
		}
		session, err := concurrency.NewSession(client, concurrency.WithTTL(int(max(c.TTL, 2*time.Second)/time.Second)))
		if err != nil {
			return nil, err
		}
		return &etcdLocker{session, c, looks}, nil
	}
}

type etcdLocker struct {
	session *concurrency.Session
	config  Config
	looks   bool
}

func (l *etcdLocker) Lock(ctx context.Context) (Held, error) {
	mutex := concurrency.NewMutex(l.session, l.config.Name)
	if err := mutex.Lock(ctx); err != nil {
		return nil, err
	}
	return etcdHeld{mutex, l}, nil
}

type etcdHeld struct {
	mutex  *concurrency.Mutex
	locker *etcdLocker
}

func (h etcdHeld) Believes() bool {
	if !h.locker.looks {
		return true
	}
	select {
	case <-h.locker.session.Done():
		return false
	default:
		return true
	}
}

func (h etcdHeld) Token() uint64                    { return uint64(h.mutex.Header().Revision) }
func (h etcdHeld) Unlock(ctx context.Context) error { return h.mutex.Unlock(ctx) }

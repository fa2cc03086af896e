package subject

import (
	"context"
	"fmt"
	"strings"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/etcdlock"
	"github.com/dlock-go/dlock/memcachelock"
	"github.com/dlock-go/dlock/redislock"
	"github.com/dlock-go/dlock/sqllock"
	"github.com/dlock-go/dlock/sqlsession"
	"github.com/dlock-go/dlock/zklock"
)

// Dlock returns the name of the subject that is dlock over a store.
func Dlock(store string) string { return store + "/dlock" }

var dlocks = func() (all []Subject) {
	for _, store := range []string{"redis", "sentinel", "redlock", "etcd", "zookeeper", "memcached", "mysql", "postgres", "session", "forupdate"} {
		all = append(all, Subject{Name: Dlock(store), Role: Ours, About: "dlock with its default settings", Open: openDlock})
	}
	return all
}()

func openDlock(ctx context.Context, c Config) (Locker, error) {
	store, err := openStore(ctx, c.URL)
	if err != nil {
		return nil, err
	}
	return &dlockLocker{dlock.New(store, nil), c}, nil
}

func openStore(ctx context.Context, url string) (driver.Store, error) {
	scheme, _, _ := strings.Cut(url, "://")
	switch scheme, _, _ = strings.Cut(scheme, "+"); scheme {
	case "redis":
		return redislock.Open(ctx, url, nil)
	case "etcd":
		return etcdlock.Open(ctx, url, nil)
	case "zookeeper":
		return zklock.Open(ctx, url, nil)
	case "memcached":
		return memcachelock.Open(ctx, url, nil)
	case "mysql", "postgres":
		if strings.Contains(url, "scheme=session") || strings.Contains(url, "scheme=forupdate") {
			return sqlsession.Open(ctx, url, nil)
		}
		return sqllock.Open(ctx, url, nil)
	}
	return nil, fmt.Errorf("no store has the scheme %q", scheme)
}

type dlockLocker struct {
	client *dlock.Client
	config Config
}

func (l *dlockLocker) Lock(ctx context.Context) (Held, error) {
	lease, err := l.client.Lock(ctx, l.config.Name, dlock.WithTTL(l.config.TTL))
	if err != nil {
		return nil, err
	}
	return dlockHeld{lease}, nil
}

type dlockHeld struct{ *dlock.Lease }

func (h dlockHeld) Believes() bool { return h.Context().Err() == nil }

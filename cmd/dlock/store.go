package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
)

// storeKind is one kind of store that URLs can name.
type storeKind struct {
	scheme string
	form   string // how its URLs look
	about  string // in one line
	open   func(ctx context.Context, url storeURL) (*openStore, error)
}

// storeKinds lists every store that this command knows. A new store is one
// more line here.
var storeKinds = []storeKind{
	{"sqlite", "sqlite:///path/file.db", "an SQLite file, for the processes of one machine", openSQLite},
	{"mysql", "mysql://user:pass@host:port/db", "MySQL or MariaDB; ?scheme=row (default), version, forupdate, session", openMySQL},
	{"mariadb", "mariadb://...", "the same", openMySQL},
	{"postgres", "postgres://user:pass@host:port/db", "PostgreSQL; ?scheme= as for MySQL, ?table_prefix=dlock_", openPostgres},
	{"postgresql", "postgresql://...", "the same", openPostgres},
	{"redis", "redis://[user:pass@]host:port/db", "one Redis; ?protocol=redisson (default) or plain", openRedis},
	{"rediss", "rediss://...", "the same with TLS; ?ca=FILE for an authority of your own", openRedis},
	{"redis+sentinel", "redis+sentinel://host:port,.../name", "Redis with Sentinel; ?replicas=1 demands an acknowledgement", openRedis},
	{"redis+cluster", "redis+cluster://host:port,...", "Redis Cluster", openRedis},
	{"redlock", "redlock://host:port,host:port,...", "Redlock over an odd number of independent Redis servers", openRedlock},
	{"memcached", "memcached://host:port", "a memcached, which may forget: for locks that only save work", openMemcached},
	{"zookeeper", "zookeeper://[user:pass@]host:port,.../root", "ZooKeeper; ?order=fair (default) or unfair, ?timeout=30s", openZooKeeper},
	{"etcd", "etcd://[user:pass@]host:port,.../pfx", "etcd; ?tls=true&ca=FILE&cert=FILE&key=FILE", openEtcd},
}

// openStore is a store in use.
type openStore struct {
	driver.Store
	// identity is the same for all spellings of one store and contains no secret.
	identity string
	// display is the URL for people. It contains no secret.
	display string
	// choice is how the store was asked for.
	choice storeChoice
	// closeMore closes what the store does not own; it may be nil.
	closeMore func() error
}

func (s *openStore) Close() error {
	err := s.Store.Close()
	if s.closeMore != nil {
		if more := s.closeMore(); err == nil {
			err = more
		}
	}
	return err
}

// openStore opens the store of this command line.
func (a *app) openStore(ctx context.Context) (*openStore, error) {
	choice, err := a.chooseStore()
	if err != nil {
		return nil, err
	}
	store, err := openStoreURL(ctx, choice.url)
	if err == nil {
		store.choice = choice
	}
	return store, err
}

func openStoreURL(ctx context.Context, raw string) (*openStore, error) {
	url := splitStoreURL(raw)
	for _, kind := range storeKinds {
		if kind.scheme == url.scheme {
			return kind.open(ctx, url)
		}
	}
	if url.scheme == withheldScheme {
		return nil, usagef("the dlock around this command was given %s with a password on its command line, which is not handed on: "+
			"use --store-file there, or --store, --store-file or $%s here", url.whole()[len(withheldScheme)+1:], storeVariable)
	}
	// The URL is not repeated: it is unknown which part of it is a password.
	return nil, usagef("unknown kind of store URL; known are:\n%s", storeList())
}

func storeList() string {
	var b strings.Builder
	for _, kind := range storeKinds {
		fmt.Fprintf(&b, "  %-36s %s\n", kind.form, kind.about)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// withClient opens the store, calls use with a client of it, and closes both.
func (a *app) withClient(ctx context.Context, use func(*dlock.Client, *openStore) error) error {
	store, err := a.openStore(ctx)
	if err != nil {
		return classify(err)
	}
	client := dlock.New(store.Store, nil)
	err = use(client, store)
	closeSoon(err, client, store) // nothing is held, so that a failure to close loses nothing
	return cannotUse(a.secrets.clean(store.display), err)
}

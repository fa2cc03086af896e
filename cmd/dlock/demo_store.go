package main

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/sqllock"
)

// demoStore is where the processes of a demo keep their locks.
type demoStore struct {
	URL  string // of --store or the environment; may contain a password
	File string // the SQLite file that is used without one
}

// chooseDemoStore returns the store of this command line, and its name for people. It
// is tried with a lock before anything else is started.
func (a *app) chooseDemoStore(ctx context.Context, folder, lock string) (chosen demoStore, display string, err error) {
	choice, err := a.chooseStore()
	if err != nil {
		return demoStore{}, "", err
	}
	if chosen.URL = choice.url; chosen.URL == "" {
		return demoStore{File: filepath.Join(folder, "locks.db")}, "an SQLite file", nil
	}
	err = a.withClient(ctx, func(client *dlock.Client, store *openStore) error {
		display = a.secrets.clean(store.display)
		lease, err := client.TryLock(ctx, lock)
		if errors.Is(err, dlock.ErrHeld) { // by another demo
			return nil
		}
		if err != nil {
			return err
		}
		return lease.Unlock(ctx)
	})
	return chosen, display, err
}

// demoTTL is shorter than usual: a memcached that has just been started gives no lock
// for as long as one lasts, and nobody wants to wait half a minute for a demo.
const demoTTL = 10 * time.Second

// client opens the store in a process of a demo. The second result closes both.
func (d demoStore) client(ctx context.Context) (*dlock.Client, func(), error) {
	store, err := d.open(ctx)
	if err != nil {
		return nil, nil, err
	}
	traits := store.Traits()
	ttl := min(max(demoTTL, traits.MinTTL), traits.LongestTTL())
	client := dlock.New(store.Store, &dlock.Options{TTL: ttl, RequestTimeout: ttl}) // the machine may be busy
	return client, func() {
		_ = client.Close() // what is not given back expires
		_ = store.Close()
	}, nil
}

func (d demoStore) open(ctx context.Context) (*openStore, error) {
	if d.URL != "" {
		return openStoreURL(ctx, d.URL)
	}
	// It does not wait for the disk: these locks need not survive a power failure.
	db, err := sql.Open("sqlite", sqllock.SQLiteDSN(d.File)+"&_pragma=synchronous(OFF)")
	if err != nil {
		return nil, err
	}
	store, err := sqllock.New(ctx, db, &sqllock.Options{Dialect: sqllock.SQLite})
	if err != nil {
		_ = db.Close()
		return nil, err
	}
	return &openStore{Store: store, closeMore: db.Close}, nil
}

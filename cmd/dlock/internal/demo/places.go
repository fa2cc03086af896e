package demo

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/cmd/dlock/internal/stores"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/fence"
	"github.com/dlock-go/dlock/sqllock"
)

// Store is where the processes of a demo keep their locks.
type Store struct {
	URL  string // of --store or the environment; may contain a password
	File string // the SQLite file if there is no URL
	Name string // for people
}

const (
	// lockTTL is short: a memcached that has just started grants no lock for one TTL.
	lockTTL = 10 * time.Second
	// databaseLimit is how long the database may take to answer, or to drop a table.
	databaseLimit = 15 * time.Second
	// stockSettings make a writer wait for other writers, and not for the disk.
	stockSettings = "_pragma=busy_timeout(20000)&_pragma=journal_mode(WAL)&_pragma=synchronous(OFF)&_txlock=immediate"
)

// client opens the store in a process of a demo. The second result closes it.
func (s Store) client(ctx context.Context) (*dlock.Client, func(), error) {
	store, err := s.open(ctx)
	if err != nil {
		return nil, nil, err
	}
	ttl := fitTTL(lockTTL, store.Driver.Traits())
	client := dlock.New(store.Driver, &dlock.Options{TTL: ttl, RequestTimeout: ttl}) // the machine may be busy
	return client, func() {
		_ = client.Close() // a lock that cannot be released expires
		_ = store.Close()
	}, nil
}

// fitTTL returns the TTL nearest to ttl that a store supports.
func fitTTL(ttl time.Duration, traits driver.Traits) time.Duration {
	return min(max(ttl, traits.MinTTL), traits.LongestTTL())
}

func (s Store) open(ctx context.Context) (*stores.Store, error) {
	if s.URL != "" {
		return stores.Open(ctx, s.URL)
	}
	// These locks need not survive a power failure, and do not wait for the disk.
	db, err := sql.Open("sqlite", sqllock.SQLiteDSN(s.File)+"&_pragma=synchronous(OFF)")
	if err != nil {
		return nil, err
	}
	store, err := sqllock.New(ctx, db, &sqllock.Options{Dialect: sqllock.SQLite})
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return &stores.Store{Driver: store, CloseMore: db.Close}, nil
}

// database is where a demo keeps its stock.
type database struct {
	*sql.DB
	dialect fence.Dialect
	name    string            // for people
	server  *stores.SQLServer // nil: a file
}

// cannotUse describes an error of the database.
func (d *database) cannotUse(err error) error {
	if d.server == nil {
		return stores.NewOpenError(d.name, "", err)
	}
	return d.server.CannotUse(err)
}

// openDatabase opens the database of --db, or an SQLite file in folder. It fails if the database
// does not answer.
func openDatabase(ctx context.Context, raw, folder string, connections int) (*database, error) {
	d := &database{dialect: fence.SQLite, name: "an SQLite file"}
	path := "/" + strings.TrimPrefix(filepath.ToSlash(filepath.Join(folder, "stock.db")), "/") // C:/
	name, dsn := "sqlite", (&url.URL{Scheme: "file", Path: path, RawQuery: stockSettings}).String()
	var err error
	if raw != "" {
		if d.server, err = databaseServer(raw); err != nil {
			return nil, err
		}
		d.name, d.dialect, name, dsn = d.server.Shown(), fence.MySQL, d.server.Driver, d.server.DSN
		if d.server.Dialect == sqllock.Postgres {
			d.dialect = fence.PostgreSQL
		}
	}
	if d.DB, err = sql.Open(name, dsn); err != nil {
		return nil, usagef("--db: the parameters: %w", err)
	}
	d.SetMaxOpenConns(connections)
	d.SetMaxIdleConns(connections)
	ctx, cancel := context.WithTimeoutCause(ctx, databaseLimit, errors.New("it did not answer in time"))
	defer cancel()
	if err := d.PingContext(ctx); err != nil {
		_ = d.Close()
		return nil, d.cannotUse(err)
	}
	return d, nil
}

// databaseServer parses a URL of --db.
func databaseServer(raw string) (*stores.SQLServer, error) {
	switch stores.Split(raw).Scheme {
	case "mysql", "mariadb", "postgres", "postgresql":
	default:
		return nil, usagef("--db takes mysql://, mariadb:// or postgres://, each with user:password@host:port/database")
	}
	server, err := stores.ParseSQL(stores.Split(raw))
	switch {
	case err != nil:
		return nil, fmt.Errorf("--db: %w", err)
	case server.Scheme != "" || server.TablePrefix != "":
		return nil, usagef("--db: scheme and table_prefix are for a store of locks, not for the database of the shop")
	}
	return server, nil
}

// checkDatabase returns an error if the URL of --db is not valid.
func (s *Stage) checkDatabase() error {
	if s.Database == "" {
		return nil
	}
	_, err := databaseServer(s.Database)
	return err
}

// withStock creates the table of the shops, calls use, and drops the table.
func (s *Stage) withStock(ctx context.Context, use func(ctx context.Context, stock *stockTable) error) error {
	db, err := openDatabase(ctx, s.Database, s.Folder, 1)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	stock, err := openStock(db, newTable())
	if err != nil {
		return err
	}
	if err := stock.create(ctx); err != nil {
		return db.cannotUse(err)
	}
	defer func() { // also after a signal
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), databaseLimit)
		defer cancel()
		if err := stock.drop(ctx); err != nil {
			fmt.Fprintf(s.Stderr, "dlock: remove the table by hand: %v\n", err)
		}
	}()
	s.database = db.name
	return use(ctx, stock)
}

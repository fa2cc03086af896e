package main

import (
	"context"
	"database/sql"
	"errors"
	"net/url"
	"path/filepath"
	"strings"

	"github.com/dlock-go/dlock/fence"
	"github.com/dlock-go/dlock/sqllock"
)

// demoDatabase is where a demo keeps what is sold.
type demoDatabase struct {
	*sql.DB
	dialect fence.Dialect
	display string // contains no secret
}

// stockSettings wait for other writers as long as it takes. Nobody needs the stock
// after a power failure.
const stockSettings = "_pragma=busy_timeout(20000)&_pragma=journal_mode(WAL)&_pragma=synchronous(OFF)&_txlock=immediate"

// openDemoDatabase opens the database of a URL of --db, or an SQLite file in folder,
// and looks whether it answers.
func openDemoDatabase(ctx context.Context, raw, folder string, connections int) (*demoDatabase, error) {
	if raw == "" {
		path := filepath.ToSlash(filepath.Join(folder, "stock.db"))
		if !strings.HasPrefix(path, "/") { // C:/
			path = "/" + path
		}
		db, err := sql.Open("sqlite", (&url.URL{Scheme: "file", Path: path, RawQuery: stockSettings}).String())
		if err != nil {
			return nil, err
		}
		return (&demoDatabase{db, fence.SQLite, "an SQLite file"}).ready(ctx, connections)
	}
	target, err := demoTarget(raw)
	if err != nil {
		return nil, err
	}
	db, err := sql.Open(target.Driver, target.DSN)
	if err != nil {
		return nil, usagef("--db: the parameters: %w", err)
	}
	d := &demoDatabase{db, fence.MySQL, target.display()}
	if target.Dialect == sqllock.Postgres {
		d.dialect = fence.PostgreSQL
	}
	return d.ready(ctx, connections)
}

// demoTarget reads a URL of --db.
func demoTarget(raw string) (target *sqlTarget, err error) {
	from := splitStoreURL(raw)
	switch from.scheme {
	case "mysql", "mariadb":
		_, target, err = mysqlTarget(from)
	case "postgres", "postgresql":
		target, err = postgresTarget(from)
	default:
		return nil, usagef("--db takes mysql://, mariadb:// or postgres://, each with user:password@host:port/database")
	}
	var own *statusError
	switch {
	case errors.As(err, &own):
		return nil, failf(own.status, "--db: %w", own.err)
	case err != nil:
		return nil, err
	case target.Scheme != sqllock.Row.String() || target.TablePrefix != "":
		return nil, usagef("--db: scheme and table_prefix are for a store of locks, not for the database of the shop")
	}
	return target, nil
}

func (d *demoDatabase) ready(ctx context.Context, connections int) (*demoDatabase, error) {
	d.SetMaxOpenConns(connections)
	d.SetMaxIdleConns(connections)
	ctx, cancel := context.WithTimeoutCause(ctx, openLimit, errors.New("it did not answer in time"))
	defer cancel()
	if err := d.PingContext(ctx); err != nil {
		_ = d.Close()
		return nil, failf(exitUnavailable, "cannot use %s: %w", d.display, err)
	}
	return d, nil
}

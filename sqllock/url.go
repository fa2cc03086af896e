package sqllock

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/dlock-go/dlock/internal/sqldb/sqlurl"
)

// ErrURL reports that a URL is not one of an SQL database. The error contains no password.
var ErrURL = sqlurl.ErrURL

// maxConns is how many connections the pool of Open has: as many as a store uses.
const maxConns = 4

// Open returns a store in the database of a URL:
//
//	sqlite:///path/file.db, or sqlite://./file.db in the current folder
//	mysql://user:password@host:port/database, or mariadb://...
//	postgres://user:password@host:port/database, or postgresql://...
//
// The program imports the driver: modernc.org/sqlite, github.com/go-sql-driver/mysql or
// github.com/jackc/pgx/v5/stdlib. The parameters scheme and table_prefix say the same as
// [Options], over which they take precedence. The driver gets all other parameters. A
// socket of MySQL is the parameter socket. A nil opts is fine, and the URL says which
// dialect it is. An error about the URL itself wraps [ErrURL].
//
// Close also closes the pool of connections that Open opens.
func Open(ctx context.Context, rawURL string, opts *Options) (*Store, error) {
	u, err := sqlurl.Parse(rawURL)
	if err != nil {
		return nil, err
	}
	var own Options
	if opts != nil {
		own = *opts
	}
	own.Dialect, own.TablePrefix = u.Dialect, cmp.Or(u.TablePrefix, own.TablePrefix)
	if u.Scheme != "" {
		if own.Scheme, err = ParseScheme(u.Scheme); err != nil {
			return nil, fmt.Errorf("%w: scheme %s is one of package sqlsession", ErrURL, u.Scheme)
		}
	}
	db, err := u.Open(ctx, maxConns)
	if err != nil {
		return nil, err
	}
	s, err := newStore(ctx, db, &own, u.Path)
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	s.owned = db
	return s, nil
}

// SQLiteDSN returns the data source name with which modernc.org/sqlite opens
// the file at path as this package recommends. Any path is fine, whatever
// characters it has.
//
// Write-ahead logging lets waiters poll without stopping the holder,
// synchronous FULL makes a lock survive a power failure, and transactions take
// the write lock when they begin. The busy timeout is very short because the
// store itself goes on trying, more evenly than SQLite does, and heeds the
// caller's context meanwhile. It is meant for the store: a program that keeps
// tables of its own in the file should open it a second time, with a timeout to
// its taste.
func SQLiteDSN(path string) string { return sqlurl.SQLiteDSN(path) }

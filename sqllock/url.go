package sqllock

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/sqldb/sqlurl"
)

// ErrURL reports that a URL is not one of an SQL database. The error contains no password.
var ErrURL = sqlurl.ErrURL

// maxConns limits the pool that Open makes for a server, to as many connections as a store uses.
const maxConns = 4

// Open returns a store in the database of a URL:
//
//	sqlite:///path/file.db, or sqlite://./file.db in the current folder
//	mysql://user:password@host:port/database, or mariadb://...
//	postgres://user:password@host:port/database, or postgresql://...
//
// The program imports the driver: modernc.org/sqlite, github.com/go-sql-driver/mysql or
// github.com/jackc/pgx/v5/stdlib. The URL says which dialect it is. Its parameters scheme and
// table_prefix take precedence over [Options], which may be nil. The socket of a MySQL server is
// the parameter socket. The driver gets all other parameters. An error about the URL itself wraps
// [ErrURL]. Close also closes the pool of connections.
func Open(ctx context.Context, rawURL string, opts *Options) (*Store, error) {
	u, err := sqlurl.Parse(rawURL)
	if err != nil {
		return nil, err
	}
	own := *cmp.Or(opts, &Options{})
	own.Dialect, own.TablePrefix = u.Dialect, cmp.Or(u.TablePrefix, own.TablePrefix)
	if u.Scheme != "" {
		if own.Scheme, err = ParseScheme(u.Scheme); err != nil {
			return nil, fmt.Errorf("%w: scheme %s is one of package sqlsession", ErrURL, u.Scheme)
		}
	}
	location := u.Location(ctx, own.Scheme.String(), own.TablePrefix)
	db, err := u.Open(ctx, maxConns)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", location.URL, err)
	}
	s, err := newStore(ctx, db, &own, u.Path)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", location.URL, err), db.Close())
	}
	s.owned, s.location = db, location
	return s, nil
}

// Location implements driver.Locator.
func (s *Store) Location() driver.Location { return s.location }

// SQLiteDSN returns the data source name with which modernc.org/sqlite opens the file at path
// as this package recommends, whatever characters the path has.
//
// Write-ahead logging lets waiters poll without stopping the holder, synchronous FULL makes a
// lock survive a power failure, and transactions take the write lock when they begin. The busy
// timeout is very short, because the store itself tries again for ten seconds, or until the caller's
// context ends.
// A program that keeps tables of its own in the file opens it a second time, with another timeout.
func SQLiteDSN(path string) string { return sqlurl.SQLiteDSN(path) }

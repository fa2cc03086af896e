package sqlsession

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/sqldb/sqlurl"
)

// ErrURL reports that a URL is not one of an SQL server. The error contains no password.
var ErrURL = sqlurl.ErrURL

// sessionConns is how many connections the pool of Open has with [Session], which needs one.
const sessionConns = 4

// Open returns a store on the server of a URL:
//
//	mysql://user:password@host:port/database, or mariadb://...
//	postgres://user:password@host:port/database, or postgresql://...
//
// The program imports the driver: github.com/go-sql-driver/mysql or
// github.com/jackc/pgx/v5/stdlib. The URL is read as sqllock.Open reads it. An error about
// the URL itself wraps [ErrURL]. Close also closes the pool of connections.
func Open(ctx context.Context, rawURL string, opts *Options) (*Store, error) {
	u, err := sqlurl.Parse(rawURL)
	if err != nil {
		return nil, err
	}
	own := *cmp.Or(opts, &Options{})
	own.Dialect, own.TablePrefix = u.Dialect, cmp.Or(u.TablePrefix, own.TablePrefix)
	if u.Scheme != "" {
		if own.Scheme, err = ParseScheme(u.Scheme); err != nil {
			return nil, fmt.Errorf("%w: scheme %s is one of package sqllock", ErrURL, u.Scheme)
		}
	}
	if own.MaxConns == 0 && own.Scheme == Session {
		own.MaxConns = sessionConns
	}
	location := u.Location(ctx, own.Scheme.String(), own.TablePrefix)
	db, err := u.Open(ctx, own.MaxConns)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", location.URL, err)
	}
	s, err := New(ctx, db, &own)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", location.URL, err), db.Close())
	}
	s.owned, s.location = db, location
	return s, nil
}

// Location implements driver.Locator.
func (s *Store) Location() driver.Location { return s.location }

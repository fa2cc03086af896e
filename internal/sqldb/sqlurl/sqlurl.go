// Package sqlurl reads the URLs of SQL databases and opens their pools:
//
//	sqlite:///path/file.db or sqlite://./file.db
//	mysql://user:password@host:port/database, or mariadb://...
//	postgres://user:password@host:port/database, or postgresql://...
//
// It takes a URL apart by hand, because the errors of package net/url quote their input,
// which may be a password. No error of this package shows one.
package sqlurl

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/dlock-go/dlock/internal/sqldb"
	"github.com/dlock-go/dlock/internal/storeurl"
)

// ErrURL reports that a URL is not one of an SQL database. The error contains no password.
var ErrURL = storeurl.ErrURL

// URL is the URL of an SQL database, taken apart and decoded.
type URL struct {
	Dialect        sqldb.Dialect
	User, Password string
	Hosts          string   // as written
	Net, Addr      string   // of a MySQL server: "tcp" and host:port, or "unix" and the path of a socket
	Database       string   // of an SQL server
	Path           string   // of an SQLite file, absolute
	Parameters     []string // of the driver: key=value as written
	Scheme         string   // how locks are kept; empty if the URL does not say it
	TablePrefix    string   // empty is the default

	Driver, DSN string // for database/sql
}

// dialTimeout is how long a server may take to accept a connection, unless the URL says
// otherwise.
const dialTimeout = 5 * time.Second

var schemes = []string{"row", "version", "forupdate", "session"}

// Parse reads a URL. Its errors wrap [ErrURL].
func Parse(raw string) (*URL, error) {
	u, err := parse(raw)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrURL, err)
	}
	return u, nil
}

func parse(raw string) (*URL, error) {
	kind, rest, _ := strings.Cut(raw, ":")
	rest, query, _ := strings.Cut(rest, "?")
	u := &URL{}
	kind = strings.ToLower(kind)
	switch kind {
	case "sqlite":
		if query != "" {
			return nil, errors.New("sqlite:// takes no parameters: remove the '?' and what follows, or write %3F for a question mark in the path")
		}
		return u, u.parseSQLite(rest)
	case "mysql", "mariadb":
		u.Dialect = sqldb.MySQL
	case "postgres", "postgresql":
		u.Dialect = sqldb.Postgres
	default:
		return nil, errors.New("it does not begin with sqlite://, mysql://, mariadb://, postgres:// or postgresql://")
	}
	if err := u.parseServer(kind, rest, query); err != nil {
		return nil, err
	}
	if u.Dialect == sqldb.MySQL {
		return u, u.parseMySQL(kind)
	}
	u.parsePostgres()
	return u, nil
}

// form is how the URL of a server is written.
const form = "://user:password@host:port/database"

// parseServer reads what the URLs of all servers share.
func (u *URL) parseServer(kind, rest, query string) (err error) {
	rest, ok := strings.CutPrefix(rest, "//")
	if !ok {
		return fmt.Errorf("write %s%s", kind, form)
	}
	if strings.Contains(query, "@") {
		// The '?' may be one of the password.
		return errors.New("an '@' follows the '?': write '?' as %3F in a password, and '@' as %40 in a parameter")
	}
	if at := strings.LastIndexByte(rest, '@'); at >= 0 {
		user, password, _ := strings.Cut(rest[:at], ":")
		rest = rest[at+1:]
		if u.User, err = unescape(user); err != nil {
			return err
		}
		if u.Password, err = unescape(password); err != nil {
			return err
		}
	}
	hosts, database, _ := strings.Cut(rest, "/")
	u.Hosts = hosts
	if u.Database, err = unescape(database); err != nil {
		return err
	}
	return u.takeParameters(query)
}

func unescape(text string) (string, error) {
	plain, err := url.PathUnescape(text)
	if err != nil {
		return "", errors.New("a '%' is not followed by two hexadecimal digits: write %25 for a percent sign, in a password too")
	}
	return plain, nil
}

// takeParameters keeps the parameters of the store and leaves the others to the driver.
func (u *URL) takeParameters(query string) error {
	for pair := range strings.SplitSeq(query, "&") {
		if pair == "" {
			continue
		}
		key, value, found := strings.Cut(pair, "=")
		plain, err := url.QueryUnescape(value)
		if !found || err != nil {
			return errors.New("what follows the '?' cannot be read: write key=value&key=value")
		}
		switch key {
		case "scheme":
			if !slices.Contains(schemes, plain) {
				return fmt.Errorf("unknown scheme %q (want row, version, forupdate or session)", plain)
			}
			u.Scheme = plain
		case "table_prefix":
			if _, err := sqldb.NewTables(plain); err != nil {
				return err
			}
			u.TablePrefix = plain
		default:
			u.Parameters = append(u.Parameters, pair)
		}
	}
	return nil
}

// take removes a parameter of the driver and returns its value, decoded; empty if it is
// not given.
func (u *URL) take(key string) (value string) {
	u.Parameters = slices.DeleteFunc(u.Parameters, func(pair string) bool {
		text, found := strings.CutPrefix(pair, key+"=")
		if found {
			value, _ = url.QueryUnescape(text) // takeParameters has tried
		}
		return found
	})
	return value
}

// has reports whether a parameter of the driver is given a value.
func (u *URL) has(key string) bool {
	return slices.ContainsFunc(u.Parameters, func(pair string) bool {
		return strings.HasPrefix(pair, key+"=") && pair != key+"="
	})
}

// Package stores opens the stores of URLs and describes them without secrets.
package stores

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/storeurl"
)

type kind struct {
	scheme string
	form   string // an example of its URLs
	about  string // in one line
}

// kinds lists every kind of store. A new store is one more line here, and a file that registers
// its opener and that a build tag leaves out.
var kinds = []kind{
	{"sqlite", "sqlite:///path/file.db", "an SQLite file, for the processes of one machine"},
	{"mysql", "mysql://user:pass@host:port/db", "MySQL or MariaDB; ?scheme=row (default), version, forupdate, session"},
	{"mariadb", "mariadb://...", "the same"},
	{"postgres", "postgres://user:pass@host:port/db", "PostgreSQL; ?scheme= as for MySQL, ?table_prefix=dlock_"},
	{"postgresql", "postgresql://...", "the same"},
	{"redis", "redis://[user:pass@]host:port/db", "one Redis; ?protocol=redisson (default) or plain"},
	{"rediss", "rediss://...", "the same with TLS; ?ca=FILE for an authority of your own"},
	{"redis+sentinel", "redis+sentinel://host:port,.../name", "Redis with Sentinel; ?replicas=1 demands an acknowledgement"},
	{"redis+cluster", "redis+cluster://host:port,...", "Redis Cluster"},
	{"redlock", "redlock://host:port,host:port,...", "Redlock over an odd number of independent Redis servers"},
	{"memcached", "memcached://host:port", "a memcached, which may forget: for locks that only save work"},
	{"zookeeper", "zookeeper://[user:pass@]host:port,.../root", "ZooKeeper; ?order=fair (default) or unfair, ?timeout=30s"},
	{"etcd", "etcd://[user:pass@]host:port,.../pfx", "etcd; ?tls=true&ca=FILE&cert=FILE&key=FILE"},
}

// opener opens the store of a URL.
type opener func(ctx context.Context, url string) (driver.Store, error)

// openers are the stores in this build, by scheme.
var openers = make(map[string]opener)

// register adds a store to this build. Its result lets a variable's declaration call it.
//
//nolint:unparam // the result is only there to be declared
func register(open opener, schemes ...string) bool {
	for _, scheme := range schemes {
		openers[scheme] = open
	}
	return true
}

// Store is an open store.
type Store struct {
	Driver driver.Store
	driver.Location

	raw string // the URL as it was given
}

// Clean returns an error text or a finding of the store without the secrets of its URL.
func (s *Store) Clean(text string) string { return NewRedactor(s.raw).Clean(text) }

// CannotUse returns err with the store's URL, in one line without secrets.
func (s *Store) CannotUse(err error) error { return cannotUse(s.raw, fmt.Errorf("%s: %w", s.URL, err)) }

// Close closes the store.
func (s *Store) Close() error { return s.Driver.Close() }

// Open opens the store of a URL. An empty one is the default, an SQLite file of the user. The
// error is a [URLError] if the URL is not valid. Otherwise it names the store, in one line without secrets.
func Open(ctx context.Context, raw string) (*Store, error) {
	scheme, rest, _ := strings.Cut(cmp.Or(raw, "sqlite:"), ":")
	scheme = strings.ToLower(scheme)
	if err := checkScheme(scheme); err != nil {
		return nil, err
	}
	store, err := openers[scheme](ctx, scheme+":"+rest)
	switch {
	case errors.Is(err, storeurl.ErrURL):
		return nil, &URLError{err}
	case errors.Is(err, driver.ErrUnsupported): // by the server
		err = &openError{err.Error(), driver.ErrMisconfigured}
	}
	if err != nil {
		return nil, cannotUse(raw, err)
	}
	return &Store{Driver: store, Location: store.(driver.Locator).Location(), raw: raw}, nil
}

// checkScheme returns a [URLError] if this build has no store for the scheme of a URL.
func checkScheme(scheme string) error {
	switch {
	case !slices.ContainsFunc(kinds, func(k kind) bool { return k.scheme == scheme }):
		// The URL is not repeated: any part of it may be a password.
		return URLErrorf("unknown kind of store URL; known are:\n%s", List())
	case openers[scheme] == nil:
		return URLErrorf("%s is not in this build of dlock; use --store with one of:\n%s", scheme, List())
	}
	return nil
}

// List describes all kinds of stores in this build, one a line.
func List() string {
	var lines []string
	for _, kind := range kinds {
		if openers[kind.scheme] != nil {
			lines = append(lines, fmt.Sprintf("  %-36s %s", kind.form, kind.about))
		}
	}
	return strings.Join(lines, "\n")
}

// URLError is an error in a store URL. Its text contains no password.
type URLError struct{ error }

func (e *URLError) Unwrap() error { return e.error }

// URLErrorf returns a URLError.
func URLErrorf(format string, values ...any) error { return &URLError{fmt.Errorf(format, values...)} }

// cannotUse takes an error that begins with where the store is. It returns one line without the secrets of the URL.
func cannotUse(url string, err error) error {
	clean := NewRedactor(url).Clean
	location, text, _ := strings.Cut(err.Error(), ": ")
	if path := strings.HasPrefix(location, "sqlite:") || strings.Contains(location, "?"); path {
		location = clean(location) // which may have a misplaced password
	}
	return &openError{"cannot use " + location + ": " + clean(oneLine(text)), err}
}

type openError struct {
	text string
	err  error
}

func (e *openError) Error() string { return e.text }

func (e *openError) Unwrap() error { return e.err }

// oneLine joins the lines of a text. Some stores return a line for each server.
func oneLine(text string) string {
	lines := strings.FieldsFunc(text, func(c rune) bool { return c == '\n' })
	for i, line := range lines {
		lines[i] = strings.TrimSpace(line)
	}
	return strings.Join(slices.DeleteFunc(lines, func(line string) bool { return line == "" }), "; ")
}

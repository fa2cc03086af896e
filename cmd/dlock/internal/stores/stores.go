// Package stores opens the stores of URLs and describes them without secrets.
package stores

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
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

type opener func(ctx context.Context, url URL) (*Store, error)

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

	URL      string // for people, without secrets and defaults
	Identity string // the same for all spellings of the URL, without secrets

	raw string // the URL as it was given
}

// Clean returns an error text or a finding of the store without the secrets of its URL.
func (s *Store) Clean(text string) string { return NewRedactor(s.raw).Clean(text) }

// CannotUse is [CannotUse] for the store.
func (s *Store) CannotUse(err error) error { return CannotUse(s.URL, s.raw, err) }

// Close closes the store.
func (s *Store) Close() error { return s.Driver.Close() }

// Open opens the store of a URL. An empty one is the default, an SQLite file of the user. The
// error is a [URLError] if the URL is not valid, and otherwise one of [CannotUse].
func Open(ctx context.Context, raw string) (*Store, error) {
	url := Split(raw)
	if err := checkScheme(url); err != nil {
		return nil, err
	}
	store, err := openers[url.Scheme](ctx, url)
	if err == nil {
		store.raw = raw
	}
	return store, err
}

// checkScheme returns a [URLError] if this build has no store for the scheme of a URL.
func checkScheme(url URL) error {
	switch {
	case !slices.ContainsFunc(kinds, func(k kind) bool { return k.scheme == url.Scheme }):
		// The URL is not repeated: any part of it may be a password.
		return URLErrorf("unknown kind of store URL; known are:\n%s", List())
	case openers[url.Scheme] == nil:
		return URLErrorf("%s is not in this build of dlock; use --store with one of:\n%s", url.Scheme, List())
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

// CannotUse returns an error about the store of a URL. shown is the URL without secrets. The text
// of the error is one line without secrets.
func CannotUse(shown, url string, err error) error {
	return &openError{"cannot use " + shown + ": " + NewRedactor(url).Clean(oneLine(err.Error())), err}
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

// URL is a store URL. It is not a net/url.URL, whose errors quote what may be a password.
type URL struct {
	Scheme string
	Rest   string // between "scheme:" and the query
	Query  string // after "?"
}

// Split never fails: a text that is no URL gets a scheme that no store has.
func Split(raw string) URL {
	if raw == "" {
		return URL{Scheme: "sqlite"}
	}
	scheme, rest, _ := strings.Cut(raw, ":")
	rest, query, _ := strings.Cut(rest, "?")
	return URL{Scheme: strings.ToLower(scheme), Rest: rest, Query: query}
}

// whole returns the URL as the packages of the stores take it.
func (u URL) whole() string {
	raw := u.Scheme + ":" + u.Rest
	if u.Query != "" {
		raw += "?" + u.Query
	}
	return raw
}

// place returns where the locks of a URL are, without the default port; empty if it is not valid.
func (u URL) place(port string) *storeurl.URL {
	at, err := storeurl.Parse(u.whole(), storeurl.Scheme{Name: u.Scheme, Port: port})
	if err != nil {
		return &storeurl.URL{Scheme: u.Scheme}
	}
	for i, host := range at.Hosts {
		at.Hosts[i] = cmp.Or(strings.TrimSuffix(host, ":"+port), "localhost")
	}
	return at
}

// shown returns the URL for people. The path and the query are those that distinguish locks.
func (u URL) shown(at *storeurl.URL, path, query string) string {
	return u.Scheme + "://" + strings.TrimSuffix(strings.Join(at.Hosts, ",")+"/"+(&url.URL{Path: path}).EscapedPath(), "/") + query
}

// opened describes what the Open of a store returned, which made no calls if it failed. The family
// is the same for all schemes of a store. The path and the parameters distinguish locks.
func (u URL) opened(store driver.Store, err error, family string, at *storeurl.URL, path string, parameters ...string) (*Store, error) {
	if err != nil {
		return nil, &URLError{err}
	}
	query := strings.Join(parameters, "&")
	if query != "" {
		query = "?" + query
	}
	shown := u.shown(at, path, query)
	slices.Sort(at.Hosts)
	same := strings.ToLower(strings.Join(slices.Compact(at.Hosts), ","))
	return &Store{Driver: store, URL: shown, Identity: family + ":" + same + "/" + path + query}, nil
}

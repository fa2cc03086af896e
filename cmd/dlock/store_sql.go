package main

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/sqllock"
	"github.com/dlock-go/dlock/sqlsession"
)

// sqlTarget is what a URL of an SQL server says.
type sqlTarget struct {
	kind     string // "mysql", "postgres"
	dialect  sqllock.Dialect
	scheme   string
	prefix   string // of the tables; empty is the default
	place    string // host:port/database as in a URL, without secrets and defaults
	identity string // the same for all spellings of place
	open     func() *sql.DB
}

const (
	// openLimit is how long a server may take until it can be used. It is
	// enough to create the tables of a server that is busy.
	openLimit = 15 * time.Second
	// dialTimeout is how long it may take to answer at all, unless the URL says
	// something else.
	dialTimeout = 5 * time.Second
	// idleLimit closes connections that are not needed, because those of a
	// command that runs for hours are one of many to the server.
	idleLimit = time.Minute
)

// openSQL opens a store on an SQL server.
func openSQL(ctx context.Context, target *sqlTarget) (*openStore, error) {
	if _, err := sqllock.Schema(target.dialect, target.prefix); err != nil {
		return nil, usagef("%w", err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, openLimit, errNoAnswer(openLimit))
	defer cancel()
	db := target.open()
	db.SetMaxOpenConns(maxConnections(target.scheme))
	db.SetMaxIdleConns(maxConnections(target.scheme))
	db.SetConnMaxIdleTime(idleLimit)
	var store driver.Store
	err := answers(ctx, db)
	if err == nil {
		store, err = newSQLStore(ctx, db, target)
	}
	if err != nil {
		_ = db.Close()
		if errors.Is(err, driver.ErrUnsupported) { // by this server, whatever the command is
			err = fmt.Errorf("%w: %s", driver.ErrMisconfigured, err)
		}
		return nil, cannotUse(target.display(), err)
	}
	return &openStore{Store: store, identity: target.fullIdentity(), display: target.display(), closeMore: db.Close}, nil
}

// answers returns an error if the server is silent. To create tables may take longer
// than a first answer. Every other failure is left to the store, which explains it.
func answers(ctx context.Context, db *sql.DB) error {
	bounded, cancel := untilFirstAnswer(ctx)
	defer cancel()
	if err := db.PingContext(bounded); err != nil && isEnded(bounded) {
		return context.Cause(bounded)
	}
	return nil
}

func newSQLStore(ctx context.Context, db *sql.DB, t *sqlTarget) (driver.Store, error) {
	if scheme, err := sqlsession.ParseScheme(t.scheme); err == nil {
		return sqlsession.New(ctx, db, &sqlsession.Options{Dialect: t.dialect, Scheme: scheme, TablePrefix: t.prefix})
	}
	scheme, err := sqllock.ParseScheme(t.scheme)
	if err != nil {
		return nil, err
	}
	return sqllock.New(ctx, db, &sqllock.Options{Dialect: t.dialect, Scheme: scheme, TablePrefix: t.prefix})
}

// maxConnections is what a command needs, which holds one lock at a time.
func maxConnections(scheme string) int {
	if scheme == sqlsession.ForUpdate.String() { // one for each lock, and those that wait
		return 8
	}
	return 4
}

// display is the URL without secrets, and without what has a default.
func (t *sqlTarget) display() string {
	var query []string
	if t.scheme != sqllock.Row.String() {
		query = append(query, "scheme="+t.scheme)
	}
	if t.prefix != "" && t.prefix != sqllock.DefaultTablePrefix {
		query = append(query, "table_prefix="+url.QueryEscape(t.prefix))
	}
	shown := t.kind + "://" + t.place
	if len(query) > 0 {
		mark := "?"
		if strings.Contains(shown, "?") {
			mark = "&"
		}
		shown += mark + strings.Join(query, "&")
	}
	return shown
}

// fullIdentity tells apart what does not exclude each other: schemes, and tables.
func (t *sqlTarget) fullIdentity() string {
	return strings.Join([]string{t.kind, t.identity, t.scheme, cmp.Or(t.prefix, sqllock.DefaultTablePrefix)}, "|")
}

// sqlURL is a URL of an SQL server, taken apart and decoded.
type sqlURL struct {
	user, password string
	hosts          string // as written
	database       string
	parameters     []string // key=value as written: those for the driver
	scheme         string
	prefix         string
}

// sqlSchemes are the ways to keep a lock.
var sqlSchemes = []string{"row", "version", "forupdate", "session"}

// sqlForm is how the URLs look.
const sqlForm = "://user:password@host:port/database"

// parseSQL takes apart what the URLs of all SQL servers share.
func parseSQL(from storeURL) (*sqlURL, error) {
	rest, ok := strings.CutPrefix(from.rest, "//")
	if !ok {
		return nil, usagef("write %s%s", from.scheme, sqlForm)
	}
	if strings.Contains(from.query, "@") {
		// The '?' may be one of the password.
		return nil, usagef("an '@' follows the '?' of the store URL: write '?' as %%3F in a password, and '@' as %%40 in a parameter")
	}
	u := &sqlURL{scheme: sqllock.Row.String()}
	var err error
	if at := strings.LastIndexByte(rest, '@'); at >= 0 {
		user, password, _ := strings.Cut(rest[:at], ":")
		rest = rest[at+1:]
		if u.user, err = unescape(user); err != nil {
			return nil, err
		}
		if u.password, err = unescape(password); err != nil {
			return nil, err
		}
	}
	hosts, database, _ := strings.Cut(rest, "/")
	u.hosts = hosts
	if u.database, err = unescape(database); err != nil {
		return nil, err
	}
	return u, u.takeParameters(from.query)
}

func unescape(text string) (string, error) {
	plain, err := url.PathUnescape(text)
	if err != nil {
		return "", usagef("the store URL has a '%%' that is no escape: write %%25 for a percent sign, in a password too")
	}
	return plain, nil
}

// takeParameters keeps those that are dlock's and leaves the others to the driver.
func (u *sqlURL) takeParameters(query string) error {
	for pair := range strings.SplitSeq(query, "&") {
		if pair == "" {
			continue
		}
		key, value, found := strings.Cut(pair, "=")
		plain, err := url.QueryUnescape(value)
		if !found || err != nil {
			return usagef("what follows the '?' of the store URL cannot be read: write key=value&key=value")
		}
		switch key {
		case "scheme":
			if !slices.Contains(sqlSchemes, plain) {
				return usagef("unknown scheme %q (want row, version, forupdate or session)", plain)
			}
			u.scheme = plain
		case "table_prefix":
			u.prefix = plain
		default:
			u.parameters = append(u.parameters, pair)
		}
	}
	return nil
}

// parameter returns the value of a parameter, decoded; empty if it is not given.
func (u *sqlURL) parameter(key string) string {
	for _, pair := range u.parameters {
		if value, found := strings.CutPrefix(pair, key+"="); found {
			plain, _ := url.QueryUnescape(value) // was tried before
			return plain
		}
	}
	return ""
}

// drop takes a parameter out, because it is not the driver's.
func (u *sqlURL) drop(key string) {
	u.parameters = slices.DeleteFunc(u.parameters, func(pair string) bool { return strings.HasPrefix(pair, key+"=") })
}

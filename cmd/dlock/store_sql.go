package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/sqldb/sqlurl"
	"github.com/dlock-go/dlock/sqllock"
	"github.com/dlock-go/dlock/sqlsession"
)

// sqlTarget is the URL of an SQL server, with what tells servers apart.
type sqlTarget struct {
	*sqlurl.URL
	place    string // host:port/database as in a URL, without secrets and defaults
	identity string // the same for all spellings of place
}

// openLimit is how long a server may take until it can be used. It is enough to create the
// tables of a server that is busy.
const openLimit = 15 * time.Second

// forUpdateConns is how many connections a command needs, which holds one lock at a time:
// one for the lock, and those that wait.
const forUpdateConns = 8

// parseSQL reads what the URLs of all SQL servers share.
func parseSQL(from storeURL) (*sqlTarget, error) {
	u, err := sqlurl.Parse(from.whole())
	if err != nil {
		return nil, usagef("%w", err)
	}
	u.Scheme = cmp.Or(u.Scheme, sqllock.Row.String())
	return &sqlTarget{URL: u}, nil
}

// openSQL opens a store on an SQL server.
func openSQL(ctx context.Context, from storeURL, target *sqlTarget) (*openStore, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, openLimit, errNoAnswer(openLimit))
	defer cancel()
	var store driver.Store
	var err error
	switch target.Scheme {
	case sqlsession.Session.String():
		store, err = sqlsession.Open(ctx, from.whole(), nil)
	case sqlsession.ForUpdate.String():
		store, err = sqlsession.Open(ctx, from.whole(), &sqlsession.Options{MaxConns: forUpdateConns})
	default:
		store, err = sqllock.Open(ctx, from.whole(), nil)
	}
	switch {
	case errors.Is(err, sqlurl.ErrURL):
		return nil, usagef("%w", err)
	case errors.Is(err, driver.ErrUnsupported): // by this server, whatever the command is
		err = fmt.Errorf("%w: %s", driver.ErrMisconfigured, err)
	}
	if err != nil {
		return nil, cannotUse(target.display(), err)
	}
	return &openStore{Store: store, identity: target.fullIdentity(), display: target.display()}, nil
}

// display is the URL without secrets, and without what has a default.
func (t *sqlTarget) display() string {
	var query []string
	if t.Scheme != sqllock.Row.String() {
		query = append(query, "scheme="+t.Scheme)
	}
	if t.TablePrefix != "" && t.TablePrefix != sqllock.DefaultTablePrefix {
		query = append(query, "table_prefix="+url.QueryEscape(t.TablePrefix))
	}
	shown := t.Dialect.String() + "://" + t.place
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
	return strings.Join([]string{t.Dialect.String(), t.identity, t.Scheme, cmp.Or(t.TablePrefix, sqllock.DefaultTablePrefix)}, "|")
}

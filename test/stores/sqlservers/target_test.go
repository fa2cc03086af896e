package sqlservers

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/sqllock"
	"github.com/dlock-go/dlock/test/harness/await"
	"github.com/dlock-go/dlock/test/harness/proxy"
)

// target is a store in a database, named by a URL like those of the command line. Besides
// ?scheme= and ?table_prefix= it takes ?max_open=, the limit of the pool; the rest is the
// driver's.
type target struct {
	*database
	url string
}

// with adds parameters.
func (s target) with(parameters ...string) target {
	for _, p := range parameters {
		switch {
		case p == "":
		case strings.Contains(s.url, "?"):
			s.url += "&" + p
		default:
			s.url += "?" + p
		}
	}
	return s
}

func (s target) edit(change func(at *url.URL)) target {
	at := s.parsed()
	change(at)
	s.url = at.String()
	return s
}

func (s target) parsed() *url.URL {
	at, err := url.Parse(s.url)
	if err != nil {
		panic(err) // it is made of a server's URL
	}
	return at
}

// at is the same store at another address.
func (s target) at(addr string) target { return s.edit(func(at *url.URL) { at.Host = addr }) }

// as is the same store for another user.
func (s target) as(user, password string) target {
	return s.edit(func(at *url.URL) { at.User = url.UserPassword(user, password) })
}

// missing is a store in a database that does not exist.
func (s target) missing() target { return s.edit(func(at *url.URL) { at.Path = "/nosuch" }) }

// name is that of the database.
func (s target) name() string { return strings.TrimPrefix(s.parsed().Path, "/") }

// scheme is that of the store.
func (s target) scheme() string { return s.parsed().Query().Get("scheme") }

// newPool opens a pool, and returns the options of the store in it.
func (s target) newPool() (*sql.DB, *sqllock.Options, error) {
	at := s.parsed()
	query := at.Query()
	opts := &sqllock.Options{Dialect: s.dialect, TablePrefix: query.Get("table_prefix")}
	if name := query.Get("scheme"); name != "" {
		var err error
		if opts.Scheme, err = sqllock.ParseScheme(name); err != nil {
			return nil, nil, err
		}
	}
	limit, _ := strconv.Atoi(query.Get("max_open")) // zero without the parameter: no limit
	for _, own := range []string{"scheme", "table_prefix", "max_open"} {
		query.Del(own)
	}
	at.RawQuery = strings.ReplaceAll(query.Encode(), "+", "%20") // which is no space to every driver
	db, err := s.pool(at)
	if err != nil {
		return nil, nil, err
	}
	db.SetMaxOpenConns(limit)
	return db, opts, nil
}

// store opens the store, as a program of its own would.
func (s target) store(ctx context.Context) (driver.Store, error) {
	db, opts, err := s.newPool()
	if err != nil {
		return nil, err
	}
	store, err := sqllock.New(ctx, db, opts)
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return owning{store, db}, nil
}

// owning is a store that closes its pool too. It drops the pool's error: the driver reports idle
// connections that the server has ended.
type owning struct {
	*sqllock.Store
	db *sql.DB
}

func (o owning) Close() error {
	defer o.db.Close()
	return o.Store.Close()
}

// storeSoon is store for a process that is started in the middle of a fault.
func (s target) storeSoon(ctx context.Context) (store driver.Store, err error) {
	for deadline := time.Now().Add(limit); time.Now().Before(deadline); <-time.After(100 * time.Millisecond) {
		if store, err = s.store(ctx); !errors.Is(err, driver.ErrUnreachable) {
			return store, err
		}
	}
	return store, err
}

// open opens the store for a test.
func (s target) open(t testing.TB) *sqllock.Store {
	t.Helper()
	store, err := s.store(t.Context())
	check(t, err)
	closeAfter(t, store)
	return store.(owning).Store
}

// behindProxy opens the store with connections that the test can disturb.
func (s target) behindProxy(t testing.TB) (*sqllock.Store, *proxy.Proxy) {
	t.Helper()
	network := proxy.Run(t, s.parsed().Host)
	return s.at(network.Addr()).open(t), network
}

// client opens a client of the store.
func (s target) client(t testing.TB) *dlock.Client {
	t.Helper()
	c := dlock.New(s.open(t), &dlock.Options{RequestTimeout: limit}) // the machine may be busy
	closeAfter(t, c)
	return c
}

// admin opens a pool for statements of an administrator.
func (s target) admin(t testing.TB) *sql.DB {
	t.Helper()
	db, _, err := s.newPool()
	check(t, err)
	closeAfter(t, db)
	return db
}

// user creates a user with rights on the tables, and returns the store for that user.
func (s target) user(t testing.TB, rights string) (as target, name string) {
	t.Helper()
	admin, name := s.admin(t), unique("user")
	run(t, admin, s.createUser(name, "pw"))
	if rights != "" {
		run(t, admin, s.grant(rights, s.name(), name))
	}
	return s.as(name, "pw"), name
}

// leftovers are locks and places in the queue that have not expired.
func (s target) leftovers(ctx context.Context, admin *sql.DB) (left []string, err error) {
	for what, query := range map[string]string{"lock": s.held, "place": s.queued} {
		names, err := column[string](ctx, admin, query)
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			left = append(left, fmt.Sprintf("%s %q", what, name))
		}
	}
	return left, nil
}

// waitBlocked waits until n statements wait for a row that is locked.
func (s target) waitBlocked(t testing.TB, admin *sql.DB, n int64) {
	t.Helper()
	await.Until(t, fmt.Sprintf("%d statements wait for a locked row", n), func() bool { return number(t, admin, s.blocked) == n })
}

// lockRows locks rows as an administrator might, until unlock is called.
func lockRows(t testing.TB, admin *sql.DB, table string, names ...string) (unlock func()) {
	t.Helper()
	tx, err := admin.BeginTx(t.Context(), nil)
	check(t, err)
	for _, name := range names {
		var locked []byte
		check(t, tx.QueryRowContext(t.Context(), "SELECT name FROM "+table+" WHERE name = '"+name+"' FOR UPDATE").Scan(&locked))
	}
	return sync.OnceFunc(func() {
		if err := tx.Rollback(); err != nil {
			t.Error(err)
		}
	})
}

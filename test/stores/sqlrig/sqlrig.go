// Package sqlrig is what the tests of stores on SQL servers share: how to open
// them, and tests that are the same for each.
//
// A store is named by a URL like those of the command line. Besides ?scheme= and
// ?table_prefix= it takes ?max_open=, the limit of the pool; the rest is the
// driver's.
package sqlrig

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/drivertest"
	"github.com/dlock-go/dlock/sqllock"
	"github.com/dlock-go/dlock/test/harness/command"
	"github.com/dlock-go/dlock/test/harness/faults"
	"github.com/dlock-go/dlock/test/harness/proxy"
	"github.com/dlock-go/dlock/test/harness/servers"
)

// Database is a kind of SQL server, as the tests need it.
type Database struct {
	Kind    *servers.Kind
	Args    []string // of the server that all tests share
	Pair    func(t testing.TB, opts servers.PairOptions) *servers.Pair
	Dialect sqllock.Dialect

	// Open makes a pool for a URL without the parameters of this package.
	Open func(at *url.URL) (*sql.DB, error)

	// Held selects the names of locks that are held, and Queued those of places
	// in the queue; both leave out what has expired.
	Held, Queued string

	// Free frees a lock by hand, as an operator might; it takes the name.
	Free string

	// CountConnections counts those of a user, Statements what the server has
	// been asked to do so far.
	CountConnections func(ctx context.Context, admin *sql.DB, user string) (int, error)
	Statements       func(ctx context.Context, admin *sql.DB) (int64, error)

	// Blocked counts the statements in the admin's database that wait for a row.
	Blocked string

	// Kill ends all connections to the admin's database but its own.
	Kill func(ctx context.Context, admin *sql.DB) error

	// CreateUser creates a user with a password and only the right to connect to the
	// admin's database. Grant gives the user rights on the tables.
	CreateUser func(ctx context.Context, admin *sql.DB, user, password string) error
	Grant      func(ctx context.Context, admin *sql.DB, user, rights string) error

	// Impatient are parameters that make the server drop connections that were
	// idle for a second.
	Impatient string

	// Isolations are parameters that set the isolation of transactions.
	Isolations []string

	server *servers.Server // all tests share it
}

// URLEnv is the variable with which other processes get the URL of the store.
const URLEnv = "DLOCK_TEST_SQL_STORE"

// Main is TestMain: one server for all tests of the package.
func (d *Database) Main(m *testing.M) {
	open := func(ctx context.Context) (driver.Store, error) { return d.storeSoon(ctx, os.Getenv(URLEnv)) }
	switch {
	case os.Getenv(drivertest.WorkEnv) != "":
		os.Exit(drivertest.Work(open))
	case os.Getenv(faults.AgentEnv) != "":
		os.Exit(faults.RunAgent(open))
	}
	os.Exit(d.run(m))
}

// atOnce is how many tests run at the same time. They wait more than they compute.
const atOnce = "5"

func (d *Database) run(m *testing.M) (status int) {
	flag.Parse()
	if err := flag.Set("test.parallel", atOnce); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	server, err := servers.Start(d.Kind, d.Args...)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	d.server = server
	status = m.Run()
	command.Remove()
	if err := server.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return status
}

var databases atomic.Int64

// URL names a store in a database that is the test's own, on the server that all
// share. The parameters are added.
func (d *Database) URL(t testing.TB, parameters ...string) string {
	t.Helper()
	return d.On(t, d.server, parameters...)
}

// On is URL for a server of the test's own.
func (d *Database) On(t testing.TB, server *servers.Server, parameters ...string) string {
	t.Helper()
	name := fmt.Sprintf("test%d", databases.Add(1))
	admin := d.DB(t, server.URL())
	if _, err := admin.ExecContext(t.Context(), "CREATE DATABASE "+name); err != nil {
		t.Fatal(err)
	}
	at, err := url.Parse(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	at.Path = "/" + name
	return With(at.String(), parameters...)
}

// With adds parameters to a URL.
func With(raw string, parameters ...string) string {
	for _, p := range parameters {
		switch {
		case p == "":
		case strings.Contains(raw, "?"):
			raw += "&" + p
		default:
			raw += "?" + p
		}
	}
	return raw
}

// As is the URL for another user.
func As(t testing.TB, raw, user, password string) string {
	t.Helper()
	at, err := url.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	at.User = url.UserPassword(user, password)
	return at.String()
}

// At is the URL for another address.
func At(raw, addr string) string {
	at, err := url.Parse(raw)
	if err != nil {
		panic(err) // it has been used before
	}
	at.Host = addr
	return at.String()
}

// Pool opens a pool for a URL, and returns the options of the store in it.
func (d *Database) Pool(raw string) (*sql.DB, *sqllock.Options, error) {
	at, err := url.Parse(raw)
	if err != nil {
		return nil, nil, err
	}
	query := at.Query()
	opts := &sqllock.Options{Dialect: d.Dialect, TablePrefix: query.Get("table_prefix")}
	if name := query.Get("scheme"); name != "" {
		if opts.Scheme, err = sqllock.ParseScheme(name); err != nil {
			return nil, nil, err
		}
	}
	limit, _ := strconv.Atoi(query.Get("max_open")) // zero without the parameter: no limit
	for _, own := range []string{"scheme", "table_prefix", "max_open"} {
		query.Del(own)
	}
	at.RawQuery = strings.ReplaceAll(query.Encode(), "+", "%20") // which is no space to every driver
	db, err := d.Open(at)
	if err != nil {
		return nil, nil, err
	}
	db.SetMaxOpenConns(limit)
	return db, opts, nil
}

// Store opens the store that a URL names, as a program of its own would.
func (d *Database) Store(ctx context.Context, raw string) (driver.Store, error) {
	db, opts, err := d.Pool(raw)
	if err != nil {
		return nil, err
	}
	store, err := sqllock.New(ctx, db, opts)
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return owning{store, db}, nil
}

// storeSoon is Store for a process that is started in the middle of a fault.
func (d *Database) storeSoon(ctx context.Context, raw string) (store driver.Store, err error) {
	for deadline := time.Now().Add(limit); time.Now().Before(deadline); <-time.After(100 * time.Millisecond) {
		if store, err = d.Store(ctx, raw); !errors.Is(err, driver.ErrUnreachable) {
			return store, err
		}
	}
	return store, err
}

// owning is a store that closes its pool too.
type owning struct {
	*sqllock.Store
	db *sql.DB
}

func (o owning) Close() error { return errors.Join(o.Store.Close(), o.db.Close()) }

// DB opens a pool for statements of the test's own.
func (d *Database) DB(t testing.TB, raw string) *sql.DB {
	t.Helper()
	db, _, err := d.Pool(raw)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Errorf("close the database: %v", err)
		}
	})
	return db
}

// Exec runs statements of the test's own.
func Exec(t testing.TB, db *sql.DB, statements ...string) {
	t.Helper()
	for _, text := range statements {
		if _, err := db.ExecContext(t.Context(), text); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
	}
}

// Opened opens a store for a test.
func (d *Database) Opened(t testing.TB, raw string) *sqllock.Store {
	t.Helper()
	store, err := d.Store(t.Context(), raw)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Errorf("close the store: %v", err)
		}
	})
	return store.(owning).Store
}

// Client opens a client of a store for a test.
func (d *Database) Client(t testing.TB, raw string) *dlock.Client {
	t.Helper()
	c := dlock.New(d.Opened(t, raw), &dlock.Options{RequestTimeout: limit}) // the machine may be busy
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return c
}

// leftovers are locks and places in the queue that have not expired.
func (d *Database) leftovers(ctx context.Context, db *sql.DB) (left []string, err error) {
	for what, query := range map[string]string{"lock": d.Held, "place": d.Queued} {
		rows, err := db.QueryContext(ctx, query)
		if err != nil {
			return nil, err
		}
		for rows.Next() {
			var name string
			if err := rows.Scan(&name); err != nil {
				return nil, errors.Join(err, rows.Close())
			}
			left = append(left, fmt.Sprintf("%s %q", what, name))
		}
		if err := errors.Join(rows.Err(), rows.Close()); err != nil {
			return nil, err
		}
	}
	return left, nil
}

// worker starts the test binary again with a store.
func worker(raw string) func() *exec.Cmd {
	return func() *exec.Cmd {
		cmd := exec.Command(os.Args[0]) //nolint:gosec // it is this program itself
		cmd.Env = append(os.Environ(), URLEnv+"="+raw)
		return cmd
	}
}

// Conform runs the conformance kit.
func (d *Database) Conform(t *testing.T, raw string) {
	t.Helper()
	db := d.DB(t, raw)
	drivertest.Run(t, drivertest.Config{
		TTL:       400 * time.Millisecond * Slowdown,
		Parallel:  8 / Slowdown,
		Open:      func(ctx context.Context) (driver.Store, error) { return d.Store(ctx, raw) },
		Delayed:   proxy.Delayed(t, host(t, raw), func(ctx context.Context, addr string) (driver.Store, error) { return d.Store(ctx, At(raw, addr)) }),
		Worker:    worker(raw),
		Leftovers: func(ctx context.Context) ([]string, error) { return d.leftovers(ctx, db) },
	})
}

// Schemes are the schemes of package sqllock.
var Schemes = []string{"row", "version"}

// EachScheme runs a test for both, at the same time, and returns when they are
// over. What the test gets is a parameter of a URL.
func EachScheme(t *testing.T, test func(t *testing.T, scheme string)) {
	t.Helper()
	var both sync.WaitGroup
	for _, scheme := range Schemes {
		both.Go(func() { t.Run(scheme, func(t *testing.T) { test(t, "scheme="+scheme) }) })
	}
	both.Wait()
}

// OnRow runs a test for the first of them alone: for what does not depend on how a lock
// is taken.
func OnRow(t *testing.T, test func(t *testing.T, scheme string)) {
	t.Helper()
	t.Run(Schemes[0], func(t *testing.T) { test(t, "scheme="+Schemes[0]) })
}

// Request returns a request of a new owner.
func Request(name string) driver.Request {
	return driver.Request{Name: name, Owner: driver.NewOwner(), TTL: 30 * time.Second,
		Holder: driver.Holder{Host: "here", PID: 7, Program: "test", Note: name}}
}

// Within is the context of a test, with a limit for what takes milliseconds.
func Within(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(t.Context(), limit, errors.New("it took too long"))
	t.Cleanup(cancel)
	return ctx
}

const limit = 30 * time.Second

// Eventually polls until something is true.
func Eventually(t testing.TB, what string, condition func() bool) {
	t.Helper()
	deadline := time.After(limit)
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for !condition() {
		select {
		case <-deadline:
			t.Fatalf("it never happened that %s", what)
		case <-again.C:
		}
	}
}

package sqlservers

import (
	"context"
	"database/sql"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/dlock-go/dlock/sqllock"
	"github.com/dlock-go/dlock/test/harness/command"
	"github.com/dlock-go/dlock/test/harness/servers"
)

// database is a kind of SQL server, as the tests need it.
type database struct {
	kind    *servers.Kind
	args    []string // of the server that all tests share
	pair    func(t testing.TB, opts servers.PairOptions) *servers.Pair
	dialect sqllock.Dialect
	pool    func(at *url.URL) (*sql.DB, error) // for a URL without the parameters of this package

	// Statements of an administrator. held and queued select the names of locks that
	// are held and of places in the queue, without those that have expired. blocked counts
	// the statements in the administrator's database that wait for a row. statements counts
	// what the server has executed so far.
	held, queued, blocked, statements string

	free        string                             // frees the lock with that name, as an operator might
	connections func(user string) string           // counts the connections of a user
	createUser  func(user, password string) string // with only the right to connect
	// grant gives a user rights on the tables of a database, grantAll also the right to
	// create some.
	grant    func(rights, database, user string) string
	grantAll func(database, user string) string
	// kill ends all connections to the administrator's database but its own.
	kill func(ctx context.Context, admin *sql.DB) error

	// everywhere are arguments of a server that listens on IPv6 and on a socket, which
	// is at that URL.
	everywhere []string
	socket     func(s target, server *servers.Server, port string) string
	// askForPasswords makes a server ask each user but the administrator for a password.
	// It is nil where every server does.
	askForPasswords func(t *testing.T, s target, server *servers.Server)

	// Parameters of URLs.
	shortIdleTimeout string   // the server drops connections that were idle for a second
	isolations       []string // of transactions
	settings         []string // that applications set for themselves

	waiterRate float64 // at most so many statements a second for 1,000 waiters

	// What errors say.
	wrongPassword, noDatabase, denied string
	// rejected are further URLs that the command line rejects.
	rejected func(s target) map[string]command.Result

	mu           sync.Mutex
	commonServer *servers.Server // started by the first test that needs it
}

// server returns the server that all tests share.
func (d *database) server(t testing.TB) *servers.Server {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.commonServer == nil {
		server, err := servers.Start(d.kind, d.args...)
		check(t, err)
		d.commonServer = server
	}
	return d.commonServer
}

func (d *database) stop() error {
	if d.commonServer == nil {
		return nil
	}
	return d.commonServer.Stop()
}

// count makes names that no other test uses.
var count atomic.Int64

// target returns a store in a database of the test's own, on the server that all tests share.
func (d *database) target(t testing.TB, parameters ...string) target {
	t.Helper()
	return d.on(t, d.server(t), parameters...)
}

// on returns a store in a database of its own on a server.
func (d *database) on(t testing.TB, server *servers.Server, parameters ...string) target {
	t.Helper()
	s, name := target{d, server.URL()}, unique("test")
	run(t, s.admin(t), "CREATE DATABASE "+name)
	return s.edit(func(at *url.URL) { at.Path = "/" + name }).with(parameters...)
}

// passwordServer starts a server that asks for passwords.
func (d *database) passwordServer(t *testing.T, args ...string) *servers.Server {
	t.Helper()
	server := servers.Run(t, d.kind, args...)
	if d.askForPasswords != nil {
		d.askForPasswords(t, target{d, server.URL()}, server)
	}
	return server
}

package sqlsession_test

import (
	"bytes"
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/sqlsession"
	"github.com/dlock-go/dlock/test/harness/await"
	"github.com/dlock-go/dlock/test/harness/proxy"
	"github.com/dlock-go/dlock/test/harness/servers"
)

// TestTokensInSecondOfStart: the numbers of MariaDB begin again if the server is started
// twice in the same second. So none is drawn before that second has ended, and tokens rise.
func TestTokensInSecondOfStart(t *testing.T) {
	t.Parallel()
	for _, d := range databases {
		if d.dialect != sqlsession.MySQL {
			continue // the numbers of PostgreSQL are on the disk
		}
		s := d.alone(sqlsession.Session, servers.Run(t, servers.WithClock(d.kind)))
		network := proxy.Run(t, s.server.Addr())
		at := time.Now().Truncate(time.Second)
		slow := func() {
			if err := s.server.SlowClock(at); err != nil {
				t.Error(err)
			}
		}
		slow()
		last := uint64(0)
		for life := range 2 {
			s.crash(t)
			drawNumbers(t, s.open(t), 100*life) // so that the number shown first is not less than before
			// The clock shows the second of the start until the store asks for the second time whether the
			// second of the start has ended.
			asks := func(request []byte) bool { return bytes.Contains(request, []byte("'Uptime'")) }
			network.OnRequest(asks, func(*proxy.Conn) {
				network.OnRequest(asks, func(*proxy.Conn) {
					at = at.Add(2 * time.Second)
					slow()
				})
			})
			store, err := s.openAt(t.Context(), network.Addr())
			check(t, err)
			for range 200 {
				grant := mustAcquire(t, store, request("x"))
				if grant.Token <= last {
					t.Fatalf("token %d was granted after %d", grant.Token, last)
				}
				last = grant.Token
				mustRelease(t, store, grant)
			}
			closeStore(t, store)
		}
	}
}

func closeStore(t *testing.T, store driver.Store) {
	t.Helper()
	if err := store.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
}

// drawNumbers draws numbers as another program.
func drawNumbers(t *testing.T, db *sql.DB, n int) {
	t.Helper()
	for range n {
		var number uint64
		check(t, db.QueryRowContext(t.Context(), "SELECT UUID_SHORT()").Scan(&number))
	}
}

// TestClientStopsWhileOpening: a client that stops while it opens a store, and has locked the
// row with the largest token, does not block others that open one.
func TestClientStopsWhileOpening(t *testing.T) {
	each(t, func(t *testing.T, s setup) {
		if s.dialect != sqlsession.MySQL || s.scheme != sqlsession.Session {
			return // PostgreSQL locks no row there
		}
		const limit = await.Limit
		network := proxy.Run(t, s.server.Addr())
		t.Cleanup(network.Reset)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		drawn := func(request []byte) bool { return bytes.Contains(request, []byte("SELECT CAST(UUID_SHORT")) }
		vanished := network.OnRequest(drawn, func(c *proxy.Conn) { c.Hold() })
		opened := make(chan struct{})
		defer func() { <-opened }()
		defer cancel()
		go func() {
			defer close(opened)
			if store, err := openDSN(ctx, s.database, s.dsn(network.Addr(), s.name), s.scheme); err == nil {
				t.Errorf("a store was opened over a connection that is silent: %v", store.Close())
			}
		}()
		select {
		case <-vanished:
		case <-time.After(limit):
			t.Fatal("no number was drawn")
		}
		patient, done := context.WithTimeout(t.Context(), limit)
		defer done()
		store, err := openDSN(patient, s.database, s.dsn(s.server.Addr(), s.name), s.scheme)
		if err != nil {
			t.Fatalf("opening a store while another client is silent: %v", err)
		}
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
}

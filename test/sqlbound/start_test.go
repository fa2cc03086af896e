package sqlbound

import (
	"bytes"
	"database/sql"
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/sqllock"
	"github.com/dlock-go/dlock/test/proxy"
	"github.com/dlock-go/dlock/test/servers"
)

// TestTokensInSecondOfStart: the numbers of MariaDB begin again if the server is started
// twice in the same second. So none is drawn before that second is over, and tokens rise.
func TestTokensInSecondOfStart(t *testing.T) {
	t.Parallel()
	for _, d := range databases {
		if d.dialect != sqllock.MySQL {
			continue // the numbers of PostgreSQL are on the disk
		}
		s := d.alone(sqllock.Session, servers.Run(t, servers.WithClock(d.kind)))
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
			if err := s.server.Kill(); err != nil {
				t.Fatal(err)
			}
			if err := s.server.Restart(); err != nil {
				t.Fatal(err)
			}
			drawNumbers(t, s.open(t), 100*life) // so that the number shown first is not less than before
			// The clock shows the second of the start until the store asks for the second time whether the
			// second of the start is over.
			asks := func(request []byte) bool { return bytes.Contains(request, []byte("'Uptime'")) }
			network.OnRequest(asks, func(*proxy.Conn) {
				network.OnRequest(asks, func(*proxy.Conn) {
					at = at.Add(2 * time.Second)
					slow()
				})
			})
			store, err := s.openAt(t.Context(), network.Addr())
			if err != nil {
				t.Fatal(err)
			}
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

// drawNumbers is what other programs do with the server's numbers.
func drawNumbers(t *testing.T, db *sql.DB, n int) {
	t.Helper()
	for range n {
		var number uint64
		if err := db.QueryRowContext(t.Context(), "SELECT UUID_SHORT()").Scan(&number); err != nil {
			t.Fatal(err)
		}
	}
}

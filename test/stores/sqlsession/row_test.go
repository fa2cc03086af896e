package sqlsession_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/dlock-go/dlock/sqlsession"
	"github.com/dlock-go/dlock/test/harness/await"
	"github.com/dlock-go/dlock/test/harness/proxy"
)

// TestLastToRaiseTokenGetsRow: the contender that raised the token of a row last gets the row,
// however long another contender keeps it locked before it leaves.
func TestLastToRaiseTokenGetsRow(t *testing.T) {
	for _, d := range databases {
		t.Run(d.kind.Name, func(t *testing.T) {
			t.Parallel()
			s := d.among(t, sqlsession.ForUpdate)
			p := proxy.Run(t, s.server.Addr())
			store, err := s.openAt(t.Context(), p.Addr())
			if err != nil {
				t.Fatal(err)
			}
			defer store.Close()
			mustRelease(t, store, mustAcquire(t, store, request("x"))) // so that there is a row
			other, err := s.open(t).Conn(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer other.Close()
			exec := func(text string) {
				if _, err := other.ExecContext(t.Context(), text); err != nil {
					t.Error(err)
				}
			}
			pins := func(request []byte) bool { return bytes.Contains(request, []byte("ISOLATION LEVEL READ COMMITTED")) }
			const attempts = 20
			tried := make(chan struct{}, attempts)
			var again func(*proxy.Conn)
			again = func(*proxy.Conn) {
				select {
				case tried <- struct{}{}:
					p.OnRequest(pins, again)
				default:
				}
			}
			p.OnRequest(pins, func(c *proxy.Conn) {
				exec("BEGIN")
				exec("SELECT token FROM dlock_bound FOR UPDATE")
				again(c)
			})
			left := make(chan struct{})
			go func() {
				defer close(left)
				for range attempts {
					select {
					case <-tried:
					case <-time.After(await.Limit):
						t.Error("the last contender does not try again")
						return
					}
				}
				exec("ROLLBACK")
			}()
			grant := mustAcquire(t, store, request("x"))
			<-left
			mustRelease(t, store, grant)
		})
	}
}

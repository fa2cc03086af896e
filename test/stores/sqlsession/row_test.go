package sqlsession_test

import (
	"bytes"
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
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

// TestContendersDoNotWaitForHolder: many contenders try at the same moment, and the one that gets the
// row keeps it. The others are refused; none waits until the holder leaves.
func TestContendersDoNotWaitForHolder(t *testing.T) {
	const contenders, rounds = 32, 60
	for _, d := range databases {
		t.Run(d.kind.Name, func(t *testing.T) {
			t.Parallel()
			s := d.among(t, sqlsession.ForUpdate)
			var stores [contenders]*sqlsession.Store
			for i := range stores {
				stores[i] = s.store(t, s.open(t))
			}
			type outcome struct {
				grant driver.Grant
				err   error
				by    *sqlsession.Store
			}
			for round := range rounds {
				outcomes := make(chan outcome, contenders)
				for _, store := range stores {
					go func() {
						grant, err := store.Acquire(t.Context(), request(strconv.Itoa(round)))
						outcomes <- outcome{grant, err, store}
					}()
				}
				var winners []outcome
				for range contenders {
					o := await.Event(t, outcomes, "the answer to a contender")
					if o.err == nil {
						winners = append(winners, o)
					} else if !errors.Is(o.err, driver.ErrHeld) {
						t.Error(o.err)
					}
				}
				if len(winners) != 1 {
					t.Fatalf("round %d: %d of %d contenders got the lock", round, len(winners), contenders)
				}
				mustRelease(t, winners[0].by, winners[0].grant)
			}
		})
	}
}

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
	eachOn(t, sqlsession.ForUpdate, func(t *testing.T, s setup) {
		p := proxy.Run(t, s.server.Addr())
		store, err := s.openAt(t.Context(), p.Addr())
		check(t, err)
		defer store.Close()
		mustRelease(t, store, mustAcquire(t, store, request("x"))) // so that there is a row
		other, err := s.open(t).Conn(t.Context())
		check(t, err)
		defer other.Close()
		exec := func(text string) {
			if _, err := other.ExecContext(t.Context(), text); err != nil {
				t.Error(err)
			}
		}
		pins := func(request []byte) bool { return bytes.Contains(request, []byte("ISOLATION LEVEL READ COMMITTED")) }
		const attempts = 8 // they have to fit into the two seconds of an attempt
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

// TestContendersDoNotWaitForHolder: many contenders try at the same moment, and the one that gets the
// row keeps it. The others are refused; none waits until the holder leaves.
func TestContendersDoNotWaitForHolder(t *testing.T) {
	const contenders, rounds = 32, 60
	const stallLimit = 5 // rounds that are repeated
	eachOn(t, sqlsession.ForUpdate, func(t *testing.T, s setup) {
		var stores [contenders]*sqlsession.Store
		for i := range stores {
			stores[i] = s.store(t, s.open(t))
		}
		type outcome struct {
			grant driver.Grant
			err   error
			by    *sqlsession.Store
			took  time.Duration
		}
		for round, stalls := 0, 0; round < rounds; round++ {
			outcomes := make(chan outcome, contenders)
			for _, store := range stores {
				go func() {
					began := time.Now()
					grant, err := store.Acquire(t.Context(), request(strconv.Itoa(round)))
					outcomes <- outcome{grant, err, store, time.Since(began)}
				}()
			}
			var winners []outcome
			stalled := false
			for range contenders {
				o := await.Event(t, outcomes, "the answer to a contender")
				switch {
				case o.err == nil:
					winners = append(winners, o)
				case errors.Is(o.err, driver.ErrHeld):
				case errors.Is(o.err, driver.ErrUnreachable) && o.took > time.Second && stalls < stallLimit:
					stalled = true // on a slow machine another contender kept the row locked for two seconds
				default:
					t.Error(o.err)
				}
			}
			if len(winners) > 1 || len(winners) == 0 && !stalled {
				t.Fatalf("round %d: %d of %d contenders got the lock", round, len(winners), contenders)
			}
			for _, w := range winners {
				mustRelease(t, w.by, w.grant)
			}
			if stalled {
				stalls++
				round--
			}
		}
	})
}

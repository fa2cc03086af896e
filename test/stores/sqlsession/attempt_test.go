package sqlsession_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/sqlsession"
	"github.com/dlock-go/dlock/test/harness/await"
	"github.com/dlock-go/dlock/test/harness/proxy"
)

// TestAttemptOverDyingConnection: the connection of an attempt dies without a sign after the server has
// carried out a request, and the caller leaves. The store ends the session over another
// connection, whichever of the attempt's requests it was, so that nothing stays locked.
func TestAttemptOverDyingConnection(t *testing.T) {
	each(t, func(t *testing.T, s setup) {
		p := proxy.Run(t, s.server.Addr())
		elsewhere := s.store(t, s.open(t))
		var count atomic.Int64 // of requests
		for number := int64(1); ; number++ {
			store, err := s.openAt(t.Context(), p.Addr())
			if err != nil {
				t.Fatal(err)
			}
			mustRelease(t, store, mustAcquire(t, store, request("x"))) // now it is connected
			ctx, leave := context.WithCancel(t.Context())
			count.Store(0)
			p.OnRequest(func([]byte) bool { return count.Add(1) == number }, func(c *proxy.Conn) {
				lost := c.LoseReplies()
				go func() {
					<-lost
					c.Hold()
					leave()
				}()
			})
			_, err = store.Acquire(ctx, request("x"))
			leave()
			last := err == nil         // the attempt has no more requests
			count.Store(math.MinInt64) // the requests that follow are others
			if last && number == 1 {
				t.Error("the attempt sent nothing")
			}
			if !last {
				await.Until(t, "the lock is free", func() bool {
					grant, err := elsewhere.Acquire(t.Context(), request("x"))
					return err == nil && elsewhere.Release(t.Context(), grant) == nil
				})
			}
			if err := store.Close(); err != nil {
				t.Error(err)
			}
			p.Reset()
			if last {
				return
			}
		}
	})
}

// TestRowsLockedByAnotherProgram: a transaction of another program that has locked the rows
// of free locks is reported as what it is, and not as their last holder.
func TestRowsLockedByAnotherProgram(t *testing.T) {
	t.Parallel()
	for _, d := range databases {
		t.Run(d.kind.Name, func(t *testing.T) {
			t.Parallel()
			s := d.among(t, sqlsession.ForUpdate)
			store := s.store(t, s.open(t))
			held := mustAcquire(t, store, request("held"))
			mustRelease(t, store, mustAcquire(t, store, request("free")))
			other, err := s.open(t).BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer other.Rollback()
			if _, err := other.ExecContext(t.Context(), "SELECT 1 FROM dlock_bound FOR UPDATE SKIP LOCKED"); err != nil {
				t.Fatal(err)
			}
			elsewhere := s.store(t, s.open(t))
			_, err = elsewhere.Acquire(within(t, await.Limit), request("free"))
			if errors.Is(err, driver.ErrHeld) || !errors.Is(err, driver.ErrUnreachable) || !strings.Contains(err.Error(), "another transaction") {
				t.Errorf("Acquire of a free lock whose row another program has locked: %v", err)
			}
			_, err = elsewhere.Acquire(within(t, await.Limit), request("held"))
			if holder, ok := errors.AsType[*driver.HeldError](err); !ok || holder.Holder.Program != "sqlsession" || holder.Token != held.Token {
				t.Errorf("Acquire of a lock that is held: %v; want its holder", err)
			}
			if err := other.Rollback(); err != nil {
				t.Fatal(err)
			}
			mustRelease(t, elsewhere, mustAcquire(t, elsewhere, request("free")))
		})
	}
}

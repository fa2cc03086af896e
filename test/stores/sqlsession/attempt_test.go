package sqlsession_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/sqlsession"
	"github.com/dlock-go/dlock/test/harness/await"
	"github.com/dlock-go/dlock/test/harness/proxy"
)

// TestLateAttempts: a caller leaves while a request of its attempt is on its way. Either the request arrives
// after the release of its owner, or the connection dies without a sign after the server has carried the
// request out. Nothing stays locked, whichever of the attempt's requests it is.
func TestLateAttempts(t *testing.T) {
	each(t, func(t *testing.T, s setup) {
		for _, dies := range []bool{false, true} {
			for number := int64(1); s.lateAttempt(t, number, dies); number++ {
			}
		}
	})
}

// lateAttempt makes an attempt of which the request with that number is late, or the last one that is
// carried out. It reports false if the attempt has fewer requests.
func (s setup) lateAttempt(t *testing.T, number int64, dies bool) bool {
	t.Helper()
	p := proxy.Run(t, s.server.Addr())
	store, err := s.openAt(t.Context(), p.Addr())
	check(t, err)
	elsewhere := s.store(t, s.open(t))
	mustRelease(t, store, mustAcquire(t, store, request("x"))) // now it is connected
	ctx, leave := context.WithCancel(t.Context())
	var late *proxy.Conn
	var count atomic.Int64 // of requests
	p.OnRequest(func([]byte) bool { return count.Add(1) == number }, func(c *proxy.Conn) {
		late = c
		if !dies {
			c.Hold()
			leave()
			return
		}
		lost := c.LoseReplies()
		go func() {
			<-lost
			c.Hold()
			leave()
		}()
	})
	req := request("x")
	_, err = store.Acquire(ctx, req)
	leave()
	count.Store(math.MinInt64) // the requests that follow are others
	switch {
	case err == nil && number == 1:
		t.Error("the attempt sent nothing")
	case err == nil: // it has no more requests
	case !errors.Is(err, context.Canceled):
		t.Fatalf("an attempt whose request %d gets no answer: %v; want Canceled", number, err)
	case dies:
		mayGet(t, elsewhere, request("x"), "the lock is free")
	default:
		delivery := time.AfterFunc(300*time.Millisecond, late.Deliver)
		undone := store.Release(t.Context(), driver.Grant{Name: "x", Owner: req.Owner})
		if undone != nil && !errors.Is(undone, driver.ErrNotHeld) {
			t.Errorf("Release, after request %d of the attempt was late: %v", number, undone)
		}
		mayGet(t, elsewhere, request("x"), "the lock is free")
		delivery.Stop()
		late.Deliver()
		if !p.Settle(await.Limit) {
			t.Fatalf("the server did not answer request %d", number)
		}
		mayGet(t, elsewhere, request("x"), "the lock is free after the late request")
	}
	if failed := store.Close(); failed != nil {
		t.Error(failed)
	}
	return err != nil
}

// TestRowsLockedByAnotherProgram: a transaction of another program that has locked the rows
// of free locks is reported as what it is, and not as their last holder.
func TestRowsLockedByAnotherProgram(t *testing.T) {
	eachOn(t, sqlsession.ForUpdate, func(t *testing.T, s setup) {
		store := s.store(t, s.open(t))
		held := mustAcquire(t, store, request("held"))
		mustRelease(t, store, mustAcquire(t, store, request("free")))
		other, err := s.open(t).BeginTx(t.Context(), nil)
		check(t, err)
		defer other.Rollback()
		order(t, other, "SELECT 1 FROM dlock_bound FOR UPDATE SKIP LOCKED")
		elsewhere := s.store(t, s.open(t))
		_, err = elsewhere.Acquire(within(t, await.Limit), request("free"))
		if errors.Is(err, driver.ErrHeld) || !errors.Is(err, driver.ErrUnreachable) || !strings.Contains(err.Error(), "another transaction") {
			t.Errorf("Acquire of a free lock whose row another program has locked: %v", err)
		}
		_, err = elsewhere.Acquire(within(t, await.Limit), request("held"))
		if holder, ok := errors.AsType[*driver.HeldError](err); !ok || holder.Holder.Program != "sqlsession" || holder.Token != held.Token {
			t.Errorf("Acquire of a lock that is held: %v; want its holder", err)
		}
		check(t, other.Rollback())
		mustRelease(t, elsewhere, mustAcquire(t, elsewhere, request("free")))
	})
}

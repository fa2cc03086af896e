package sqlsession_test

import (
	"context"
	"errors"
	"math"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/test/harness/await"
	"github.com/dlock-go/dlock/test/harness/proxy"
)

// TestLateAttempts: a caller leaves while a request of its attempt is on its way, and the
// request arrives after the release of its owner. Nothing is left behind, whichever of
// the attempt's requests it is.
func TestLateAttempts(t *testing.T) {
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
			var late *proxy.Conn
			count.Store(0)
			p.OnRequest(func([]byte) bool { return count.Add(1) == number }, func(c *proxy.Conn) {
				late = c
				c.Hold()
				leave()
			})
			req := request("x")
			_, err = store.Acquire(ctx, req)
			leave()
			count.Store(math.MinInt64) // the requests that follow are others
			if err == nil {            // it has no more requests
				if number == 1 {
					t.Error("the attempt sent nothing")
				}
				if err := store.Close(); err != nil {
					t.Error(err)
				}
				return
			}
			if !errors.Is(err, context.Canceled) {
				t.Fatalf("an attempt whose request %d does not arrive: %v; want Canceled", number, err)
			}
			delivery := time.AfterFunc(300*time.Millisecond, late.Deliver)
			err = store.Release(t.Context(), driver.Grant{Name: "x", Owner: req.Owner})
			if err != nil && !errors.Is(err, driver.ErrNotHeld) {
				t.Errorf("Release, after request %d of the attempt was late: %v", number, err)
			}
			await.Until(t, "the lock is free", func() bool {
				grant, err := elsewhere.Acquire(t.Context(), request("x"))
				return err == nil && elsewhere.Release(t.Context(), grant) == nil
			})
			delivery.Stop()
			late.Deliver()
			if !p.Settle(await.Limit) {
				t.Fatalf("the server did not answer request %d", number)
			}
			await.Until(t, "the lock is free after the late request", func() bool {
				grant, err := elsewhere.Acquire(t.Context(), request("x"))
				return err == nil && elsewhere.Release(t.Context(), grant) == nil
			})
			if err := store.Close(); err != nil {
				t.Error(err)
			}
		}
	})
}

// TestCloseOverASilentConnection: a connection that died without a sign does not keep Close
// from returning, nor its locks from being released.
func TestCloseOverASilentConnection(t *testing.T) {
	each(t, func(t *testing.T, s setup) {
		p := proxy.Run(t, s.server.Addr())
		store, err := s.openAt(t.Context(), p.Addr())
		if err != nil {
			t.Fatal(err)
		}
		mustAcquire(t, store, request("x"))
		elsewhere := s.store(t, s.open(t))
		p.Blackhole()
		closed := make(chan struct{})
		go func() {
			defer close(closed)
			_ = store.Close()
		}()
		select {
		case <-closed:
		case <-time.After(await.Limit):
			t.Error("Close does not return")
			p.Reset()
			<-closed
		}
		mustAcquire(t, elsewhere, request("x"))
	})
}

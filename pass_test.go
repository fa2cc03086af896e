package dlock_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/memlock"
)

// TestImpatientCallerDelaysNoReportOfAnOutage: a caller learns of an outage within a RequestTimeout, also if
// the first caller before it gives up sooner.
func TestImpatientCallerDelaysNoReportOfAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &mutable{remote: remote{memlock.New()}}
		store.silent.Store(true)
		c := dlock.New(store, nil)
		defer c.Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		first, second := lockSoon(c, ctx), lockSoon(c, t.Context())
		began := time.Now()
		third := <-lockSoon(c, t.Context())
		if took := time.Since(began); took > dlock.DefaultRequestTimeout || !errors.Is(third.err, dlock.ErrUnreachable) {
			t.Errorf("after %v: %v; want ErrUnreachable within %v", took, third.err, dlock.DefaultRequestTimeout)
		}
		<-first
		<-second
	})
}

// TestWaitersOfALostLockReportNoOutage: callers whose wait ends at the moment of a loss, while the next of them has not asked the store yet, report no
// outage, however long they have waited.
func TestWaitersOfALostLockReportNoOutage(t *testing.T) {
	c := dlock.New(memlock.New(), nil)
	defer c.Close()
	holder := mustLock(t, c, t.Context(), "x", dlock.WithFixedTTL(400*time.Millisecond))
	ctx, cancel := context.WithCancel(t.Context())
	context.AfterFunc(holder.Context(), cancel)
	var all sync.WaitGroup
	var outages atomic.Int64
	for range 1000 {
		all.Go(func() {
			if l, err := c.Lock(ctx, "x"); err == nil {
				_ = l.Unlock(ctx)
			} else if errors.Is(err, dlock.ErrUnreachable) {
				outages.Add(1)
			}
		})
	}
	all.Wait()
	if n := outages.Load(); n > 0 {
		t.Errorf("%d callers report an outage", n)
	}
}

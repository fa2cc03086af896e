package dlock_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/memlock"
)

// After a late answer to the first renewal, and no other answer, the lease ends a TTL after
// the first renewal was sent.
func TestTrustOfARenewalCountsFromItsSending(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Store) {
		const ttl = 9 * time.Second
		s := &lateRenewal{remote: remote{store}, late: 2 * time.Second}
		c := dlock.New(s, nil)
		defer c.Close()
		lease := mustLock(t, c, t.Context(), "x", dlock.WithTTL(ttl))
		<-lease.Context().Done()
		if s.sent.IsZero() {
			t.Fatal("the lease ended without a renewal")
		}
		if lasted := time.Since(s.sent); lasted > ttl || lasted < ttl*9/10 {
			t.Errorf("the lease lasted %v after its renewal was sent; want a little less than %v", lasted, ttl)
		}
		_ = lease.Unlock(t.Context())
	})
}

// lateRenewal answers the first renewal late, and no other renewal.
type lateRenewal struct {
	remote
	late time.Duration
	sent time.Time // when the first renewal was sent
}

func (s *lateRenewal) Renew(ctx context.Context, grants []driver.Grant) []error {
	if !s.sent.IsZero() {
		<-ctx.Done()
		return []error{ctx.Err()}
	}
	s.sent = time.Now()
	errs := s.Store.Renew(ctx, grants)
	time.Sleep(s.late)
	return errs
}

// Renewals that are due together are sent in one call.
func TestRenewalsAreBatched(t *testing.T) {
	bubble(t, func(t *testing.T, inner *memlock.Store) {
		store := &counting{Store: inner}
		c := dlock.New(store, nil)
		defer c.Close()
		before := runtime.NumGoroutine()
		for i := range 5000 {
			mustLock(t, c, t.Context(), fmt.Sprint(i))
			if i%100 == 0 {
				time.Sleep(10 * time.Millisecond)
			}
		}
		if added := runtime.NumGoroutine() - before; added > 0 {
			t.Errorf("%d goroutines for the leases", added)
		}
		time.Sleep(10 * time.Minute)
		// A round is 5 calls of 1000, and there are 60 to 70 rounds.
		if n := store.renews.Load(); n < 5*60 || n > 5*80 {
			t.Errorf("%d calls renewed 5000 leases for ten minutes", n)
		}
		leases := 0
		for range inner.List(t.Context(), "") {
			leases++
		}
		if leases != 5000 {
			t.Errorf("%d leases are still held", leases)
		}
	})
}

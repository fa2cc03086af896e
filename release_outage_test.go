package dlock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/memlock"
)

// refusing is a store behind a proxy that refuses connections at once while it is down.
type refusing struct {
	*memlock.Store
	down     atomic.Bool
	releases atomic.Int64
}

var errRefused = fmt.Errorf("%w: connection refused", driver.ErrUnreachable)

func (s *refusing) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	if s.down.Load() {
		return driver.Grant{}, errRefused
	}
	return s.Store.Acquire(ctx, req)
}

func (s *refusing) Renew(ctx context.Context, grants []driver.Grant) []error {
	if s.down.Load() {
		errs := make([]error, len(grants))
		for i := range errs {
			errs[i] = errRefused
		}
		return errs
	}
	return s.Store.Renew(ctx, grants)
}

func (s *refusing) Release(ctx context.Context, grant driver.Grant) error {
	s.releases.Add(1)
	if s.down.Load() {
		return errRefused
	}
	return s.Store.Release(ctx, grant)
}

// Unlock returns soon while the store refuses connections, and the lock is free soon after the
// store is back: long before it expires. Callers of the same process get it, too.
func TestUnlockGoesOnInTheBackground(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Store) {
		s := &refusing{Store: store}
		c, other := dlock.New(s, nil), dlock.New(store, nil)
		defer c.Close()
		defer other.Close()
		for _, next := range []*dlock.Client{other, c} {
			lease := mustLock(t, c, t.Context(), "x")
			s.down.Store(true)
			start := time.Now()
			if err := lease.Unlock(t.Context()); !errors.Is(err, dlock.ErrUnreachable) || !strings.Contains(err.Error(), "background") {
				t.Errorf("Unlock: %v; want ErrUnreachable, and that it goes on", err)
			}
			if took := time.Since(start); took > time.Second {
				t.Errorf("Unlock took %v", took)
			}
			time.Sleep(1500 * time.Millisecond)
			s.down.Store(false)
			mustUnlock(t, mustLock(t, next, t.Context(), "x"))
			if waited := time.Since(start); waited > 5*time.Second {
				t.Errorf("the lock was free %v after Unlock; the store was back after 1.5 s", waited)
			}
		}
	})
}

// It goes on until the lock expires, also if the margin is long: until then the name stays locked.
func TestUnlockGoesOnDuringTheMargin(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Store) {
		s := &refusing{Store: store}
		c, other := dlock.New(s, nil), dlock.New(store, nil)
		defer c.Close()
		defer other.Close()
		lease := mustLock(t, c, t.Context(), "x", dlock.WithMargin(dlock.DefaultTTL/3))
		s.down.Store(true)
		start := time.Now()
		_ = lease.Unlock(t.Context())
		time.Sleep(dlock.DefaultTTL * 3 / 4) // the trust deadline has passed
		s.down.Store(false)
		mustUnlock(t, mustLock(t, other, t.Context(), "x"))
		if waited := time.Since(start); waited > dlock.DefaultTTL-time.Second {
			t.Errorf("the lock was free %v after Unlock; it expired after %v", waited, dlock.DefaultTTL)
		}
	})
}

// The background is over when the lock has expired, and does not flood the store before.
func TestUnlockInTheBackgroundEnds(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Store) {
		s := &refusing{Store: store}
		c := dlock.New(s, nil)
		defer c.Close()
		lease := mustLock(t, c, t.Context(), "x")
		s.down.Store(true)
		_ = lease.Unlock(t.Context())
		time.Sleep(dlock.DefaultTTL)
		n := s.releases.Load()
		if n < 10 || n > 50 {
			t.Errorf("%d releases in a TTL; want a few tens", n)
		}
		time.Sleep(time.Hour)
		if more := s.releases.Load() - n; more > 0 {
			t.Errorf("%d releases after the lock expired", more)
		}
	})
}

// Close goes on as long as it may take, for locks that are held and for those of an earlier Unlock.
func TestCloseGoesOnReleasing(t *testing.T) {
	for _, outage := range []time.Duration{1500 * time.Millisecond, time.Hour} {
		t.Run(outage.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T, store *memlock.Store) {
				s := &refusing{Store: store}
				var released []error
				c := dlock.New(s, &dlock.Options{Hooks: dlock.Hooks{Released: func(e dlock.Event) { released = append(released, e.Err) }}})
				mustLock(t, c, t.Context(), "held")
				unlocked := mustLock(t, c, t.Context(), "unlocked")
				s.down.Store(true)
				_ = unlocked.Unlock(t.Context())
				time.AfterFunc(outage, func() { s.down.Store(false) })
				start := time.Now()
				err := c.Close()
				took := time.Since(start)
				short := outage < time.Minute
				if !short && (err == nil || !strings.Contains(err.Error(), " 2 locks")) {
					t.Errorf("Close: %v; want that 2 locks are left", err)
				}
				if short != (err == nil) || took > 2*dlock.DefaultRequestTimeout+time.Second || short && took > 5*time.Second {
					t.Errorf("Close in an outage of %v took %v: %v", outage, took, err)
				}
				if len(released) != 2 || errors.Is(released[0], dlock.ErrUnreachable) == errors.Is(released[1], dlock.ErrUnreachable) == short {
					t.Errorf("the hook Released got %v", released)
				}
				for info := range store.List(t.Context(), "") {
					if short {
						t.Errorf("%q is held after Close", info.Name)
					}
				}
				time.Sleep(2 * time.Hour) // the locks expire
			})
		})
	}
}

// A waiter that is cancelled in an outage gives up its place when the store is back, so that the
// waiters behind it need not wait until the place expires.
func TestPlaceIsGivenUpAfterAnOutage(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Store) {
		s := &refusing{Store: store}
		c, other := dlock.New(s, nil), dlock.New(store, nil)
		defer c.Close()
		defer other.Close()
		holder := mustLock(t, other, t.Context(), "x", dlock.WithFair())
		ctx, cancel := context.WithCancel(t.Context())
		failed := make(chan error, 1)
		go func() {
			_, err := c.Lock(ctx, "x", dlock.WithFair())
			failed <- err
		}()
		synctest.Wait()
		s.down.Store(true)
		cancel()
		if err := <-failed; !errors.Is(err, context.Canceled) {
			t.Errorf("the wait ended with %v", err)
		}
		time.AfterFunc(1500*time.Millisecond, func() { s.down.Store(false) })
		start := time.Now()
		mustUnlock(t, holder)
		mustUnlock(t, mustLock(t, other, t.Context(), "x", dlock.WithFair()))
		if waited := time.Since(start); waited > 5*time.Second {
			t.Errorf("the next caller waited %v behind no other one", waited)
		}
	})
}

// Close releases the locks of other servers although hundreds of releases hang at one server.
func TestCloseReleasesOthersWhileHundredsHang(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Store) {
		c := dlock.New(&oneServerHangs{remote: remote{store}}, nil)
		for i := range 1000 {
			mustLock(t, c, t.Context(), fmt.Sprint("hangs ", i))
			mustLock(t, c, t.Context(), fmt.Sprint("healthy ", i))
		}
		start := time.Now()
		if err := c.Close(); !errors.Is(err, dlock.ErrUnreachable) || !strings.Contains(err.Error(), " 1000 locks") {
			t.Errorf("Close: %v; want that 1000 locks are left", err)
		}
		if took := time.Since(start); took > 3*dlock.DefaultRequestTimeout {
			t.Errorf("Close took %v", took)
		}
		healthy := 0
		for info := range store.List(t.Context(), "") {
			if strings.HasPrefix(info.Name, "healthy") {
				healthy++
			}
		}
		if healthy > 0 {
			t.Errorf("%d of 1000 locks of healthy servers are held after Close", healthy)
		}
		time.Sleep(time.Minute) // the others expire
	})
}

// oneServerHangs answers no release of the names that begin with hangs.
type oneServerHangs struct{ remote }

func (s *oneServerHangs) Release(ctx context.Context, grant driver.Grant) error {
	if strings.HasPrefix(grant.Name, "hangs") {
		<-ctx.Done()
		return ctx.Err()
	}
	return s.Store.Release(ctx, grant)
}

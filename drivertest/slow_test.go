package drivertest_test

import (
	"context"
	"fmt"
	"iter"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/drivertest"
	"github.com/dlock-go/dlock/internal/backoff"
	"github.com/dlock-go/dlock/memlock"
)

// TestSoundStoreOnSlowMachine runs the kit on a sound store, in virtual time, while every call
// is slow and the machine stalls for longer than a TTL now and then.
func TestSoundStoreOnSlowMachine(t *testing.T) {
	const ttl = 300 * time.Millisecond
	for _, c := range []struct {
		name          string
		delay         time.Duration // the longest of a request or a reply
		every, length time.Duration // of the stalls
	}{
		{"slow calls", ttl / 3, 0, 0},
		{"short stalls", ttl / 20, time.Second, ttl},
		{"long stalls", ttl / 20, 4 * time.Second, 2 * time.Second},
		{"rare long stalls", ttl / 20, 13 * time.Second, 3 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				m := slowMachine{memlock.New(), time.Now(), c.delay, c.every, c.length}
				cfg := quick(m)
				cfg.TTL, cfg.Delayed, cfg.Skewed = ttl, nil, nil
				if err := drivertest.Check(t.Context(), cfg); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// slowMachine delays each request and each reply.
type slowMachine struct {
	*memlock.Store
	start         time.Time
	delay         time.Duration
	every, length time.Duration
}

// travel delays a message.
func (m slowMachine) travel(ctx context.Context) error {
	pause := rand.N(m.delay)
	if m.every > 0 {
		if sinceStall := (time.Since(m.start) + pause) % m.every; sinceStall < m.length {
			pause += m.length - sinceStall
		}
	}
	if err := backoff.Sleep(ctx, pause); err != nil {
		return fmt.Errorf("%w: %w", driver.ErrUnreachable, err)
	}
	return nil
}

// call lets a request and its reply travel. The reply may be lost after f was carried out.
func (m slowMachine) call(ctx context.Context, f func() error) error {
	if err := m.travel(ctx); err != nil {
		return err
	}
	err := f()
	if lost := m.travel(ctx); lost != nil {
		return lost
	}
	return err
}

func (m slowMachine) Acquire(ctx context.Context, req driver.Request) (grant driver.Grant, err error) {
	err = m.call(ctx, func() error { grant, err = m.Store.Acquire(ctx, req); return err })
	return grant, err
}

func (m slowMachine) Renew(ctx context.Context, grants []driver.Grant) (errs []error) {
	if err := m.call(ctx, func() error { errs = m.Store.Renew(ctx, grants); return nil }); err != nil {
		errs = make([]error, len(grants))
		for i := range errs {
			errs[i] = err
		}
	}
	return errs
}

func (m slowMachine) Release(ctx context.Context, grant driver.Grant) error {
	return m.call(ctx, func() error { return m.Store.Release(ctx, grant) })
}

func (m slowMachine) Watch(ctx context.Context, req driver.Request, wake func()) (stop func(), err error) {
	err = m.call(ctx, func() error { stop, err = m.Store.Watch(ctx, req, wake); return err })
	return stop, err
}

func (m slowMachine) AcquireAll(ctx context.Context, reqs []driver.Request) (grants []driver.Grant, err error) {
	err = m.call(ctx, func() error { grants, err = m.Store.AcquireAll(ctx, reqs); return err })
	return grants, err
}

func (m slowMachine) Break(ctx context.Context, name string, token uint64) error {
	return m.call(ctx, func() error { return m.Store.Break(ctx, name, token) })
}

func (m slowMachine) List(ctx context.Context, prefix string) iter.Seq2[driver.Info, error] {
	return func(yield func(driver.Info, error) bool) {
		if err := m.travel(ctx); err != nil {
			yield(driver.Info{}, err)
			return
		}
		m.Store.List(ctx, prefix)(yield)
	}
}

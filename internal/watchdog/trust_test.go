package watchdog

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/alarm"
	"github.com/dlock-go/dlock/internal/clock"
)

// The trust deadline counts from when the last successful renewal was sent, however
// late its answer came.
func TestTrustCountsFromTheSending(t *testing.T) {
	const ttl = 30 * time.Second
	for _, late := range []time.Duration{0, time.Second, 4 * time.Second} {
		t.Run(late.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var sent time.Time // the renewal that is answered
				b := start(t, func(ctx context.Context, grants []driver.Grant) []error {
					if sent.IsZero() {
						sent = time.Now()
						time.Sleep(late)
						return nil
					}
					<-ctx.Done()
					return []error{ctx.Err()}
				})
				l, r := b.watch("x", ttl, false)
				time.Sleep(time.Hour)
				synctest.Wait()
				if r.renewed != 1 || !errors.Is(r.lost, ErrExpired) {
					t.Fatalf("renewed %d times, lost: %v; want once, and then lost", r.renewed, r.lost)
				}
				if want := sent.Add(ttl - l.Margin); !r.lostAt.Equal(want) {
					t.Errorf("lost %v after the renewal was sent; want %v", r.lostAt.Sub(sent), want.Sub(sent))
				}
			})
		})
	}
}

// A renewal that is answered after the trust deadline does not revive the hold, even if the
// watchdog's own goroutine was kept from running: another owner may have had the lock meanwhile.
func TestLateAnswerDoesNotReviveAHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ttl = 30 * time.Second
		// No goroutine runs the alarm.
		b := &fixture{clock: clock.New()}
		b.dog = &Watchdog{Config: Config{Clock: b.clock}, alarm: alarm.New(), wakeAt: never}
		h, r := b.watch("x", ttl, false)
		time.Sleep(ttl / 3)
		sent := b.clock.Now()
		time.Sleep(ttl * 5 / 6) // less than a TTL after the renewal was sent
		b.dog.finish(&renewal{holds: []*Hold{h}, done: make(chan struct{})}, sent, nil)
		b.dog.wg.Wait()
		if r.renewed != 0 || !errors.Is(r.lost, ErrExpired) {
			t.Errorf("renewed %d times, lost: %v; want only ErrExpired", r.renewed, r.lost)
		}
	})
}

// Timers do not run while the machine is suspended. The watchdog notices the end of a
// hold within a second after the machine woke.
func TestLossIsNoticedAfterSuspension(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var slept atomic.Int64
		b := &fixture{clock: clock.NewSuspending(func() time.Duration { return time.Duration(slept.Load()) })}
		b.dog = New(Config{Clock: b.clock, Timeout: 5 * time.Second, Renew: func(context.Context, []driver.Grant) []error { return nil }})
		defer b.dog.Close()
		_, fixed := b.watch("fixed", time.Hour, true)
		_, renewed := b.watch("renewed", time.Hour, false)
		time.Sleep(time.Minute)
		slept.Store(int64(2 * time.Hour))
		woke := time.Now()
		time.Sleep(time.Minute)
		synctest.Wait()
		for name, r := range map[string]*record{"fixed": fixed, "renewed": renewed} {
			if after := r.lostAt.Sub(woke); !errors.Is(r.lost, ErrExpired) || after > time.Second {
				t.Errorf("%s: lost %v after the machine woke: %v; want within a second", name, after, r.lost)
			}
		}
	})
}

// A hold that is forgotten after it was due and before its renewal is sent is not renewed.
func TestNothingIsRenewedAfterForget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, func(_ context.Context, grants []driver.Grant) []error {
			t.Errorf("%q was renewed after it was forgotten", grants[0].Name)
			return nil
		})
		l, _ := b.watch("x", 30*time.Second, false)
		b.dog.mu.Lock()
		b.dog.senders = maxSenders // all senders are busy
		b.dog.mu.Unlock()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		b.dog.mu.Lock()
		due := len(b.dog.pending)
		b.dog.mu.Unlock()
		if due != 1 {
			t.Fatalf("%d holds are due; want 1", due)
		}
		b.dog.Forget(l)
		b.dog.sender() // a sender that became free
	})
}

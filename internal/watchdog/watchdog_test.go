package watchdog

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/clock"
)

// record is a guard that records its calls.
type record struct {
	mu      sync.Mutex
	renewed int
	failed  int
	lost    error
	lostAt  time.Time
}

func (r *record) Renewed(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil {
		r.renewed++
	} else {
		r.failed++
	}
}

func (r *record) Lost(reason error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lost, r.lostAt = reason, time.Now()
}

func (r *record) AfterLoss() {}

type fixture struct {
	dog   *Watchdog
	clock *clock.Clock
	renew func(ctx context.Context, grants []driver.Grant) []error
}

func start(t *testing.T, renew func(ctx context.Context, grants []driver.Grant) []error) *fixture {
	b := &fixture{clock: clock.New(), renew: renew}
	b.dog = New(Config{Clock: b.clock, Timeout: 5 * time.Second, Renew: renew})
	t.Cleanup(b.dog.Close)
	return b
}

func (b *fixture) watch(name string, ttl time.Duration, fixed bool) (*Hold, *record) {
	r := new(record)
	l := &Hold{Grant: driver.Grant{Name: name, TTL: ttl}, Margin: Margin(ttl, -1), Fixed: fixed, Observer: r}
	b.dog.Watch(l, b.clock.Now())
	return l, r
}

func TestLeaseIsRenewedEveryThirdOfItsTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, func(context.Context, []driver.Grant) []error { return nil })
		_, r := b.watch("x", 30*time.Second, false)
		_, fixed := b.watch("y", 30*time.Second, true)
		time.Sleep(305 * time.Second)
		synctest.Wait()
		if r.renewed != 30 || r.lost != nil {
			t.Errorf("renewed %d times in 305 s, lost: %v; want 30 times", r.renewed, r.lost)
		}
		if fixed.renewed != 0 || !errors.Is(fixed.lost, ErrExpired) {
			t.Errorf("a fixed TTL was renewed %d times, lost: %v", fixed.renewed, fixed.lost)
		}
	})
}

// A store that never answers cannot delay the loss of a hold.
func TestHangingStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, func(ctx context.Context, grants []driver.Grant) []error {
			<-ctx.Done()
			errs := make([]error, len(grants))
			for i := range errs {
				errs[i] = ctx.Err()
			}
			return errs
		})
		begin := time.Now()
		records := map[time.Duration]*record{}
		for _, ttl := range []time.Duration{100 * time.Millisecond, time.Second, 7 * time.Second, 30 * time.Second, time.Hour} {
			_, records[ttl] = b.watch(ttl.String(), ttl, false)
		}
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		for ttl, r := range records {
			want := ttl - Margin(ttl, -1)
			if got := r.lostAt.Sub(begin); !errors.Is(r.lost, ErrExpired) || got != want {
				t.Errorf("TTL %v: lost after %v (%v); want %v", ttl, got, r.lost, want)
			}
			if r.failed < 2 && ttl > 100*time.Millisecond {
				t.Errorf("TTL %v: gave up after %d attempts", ttl, r.failed)
			}
		}
		if n := len(b.dog.Holds()); n != 0 {
			t.Errorf("%d holds are watched after they were lost", n)
		}
	})
}

func TestEveryLeaseHasItsOwnOutcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, func(_ context.Context, grants []driver.Grant) []error {
			errs := make([]error, len(grants))
			for i, g := range grants {
				switch g.Name {
				case "not held":
					errs[i] = fmt.Errorf("as a store says it: %w", driver.ErrNotHeld)
				case "unknown":
					errs[i] = errors.New("reset by peer")
				}
			}
			return errs
		})
		_, fine := b.watch("fine", 30*time.Second, false)
		_, notHeld := b.watch("not held", 30*time.Second, false)
		_, unknown := b.watch("unknown", 30*time.Second, false)
		begin := time.Now()
		time.Sleep(29 * time.Second)
		synctest.Wait()
		// Twice, or a third time early together with a retry of the other.
		if fine.renewed < 2 || fine.renewed > 3 || fine.lost != nil {
			t.Errorf("fine: renewed %d, lost %v", fine.renewed, fine.lost)
		}
		if after := notHeld.lostAt.Sub(begin); !errors.Is(notHeld.lost, ErrGone) || after > 10*time.Second {
			t.Errorf("not held: lost %v after %v", notHeld.lost, after)
		}
		if unknown.failed < 3 || unknown.lost != nil {
			t.Errorf("unknown: tried %d times, lost %v", unknown.failed, unknown.lost)
		}
	})
}

// A store that returns too few errors has not answered.
func TestTooFewErrorsAreNoRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, func(context.Context, []driver.Grant) []error { return []error{} })
		_, r := b.watch("x", 30*time.Second, false)
		time.Sleep(time.Minute)
		synctest.Wait()
		if r.renewed != 0 || !errors.Is(r.lost, ErrExpired) {
			t.Errorf("renewed %d times, lost %v", r.renewed, r.lost)
		}
	})
}

func TestForgetReturnsTheRenewalUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inside := make(chan struct{})
		finish := make(chan struct{})
		b := start(t, func(context.Context, []driver.Grant) []error {
			inside <- struct{}{}
			<-finish
			return nil
		})
		l, r := b.watch("x", 30*time.Second, false)
		<-inside
		renewal := b.dog.Forget(l)
		select {
		case <-renewal:
			t.Fatal("the channel is closed while the renewal is under way")
		default:
		}
		close(finish)
		<-renewal
		time.Sleep(time.Hour)
		synctest.Wait()
		if r.renewed != 0 || r.lost != nil {
			t.Errorf("after Forget the guard was called: %+v", r)
		}
	})
}

// Many short holds do not wake the watchdog, and an idle watchdog sleeps.
func TestShortLeasesDoNotWakeTheWatchdog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, func(context.Context, []driver.Grant) []error { return nil })
		wakeAt := func() clock.Instant {
			b.dog.mu.Lock()
			defer b.dog.mu.Unlock()
			return b.dog.wakeAt
		}
		l, _ := b.watch("x", 30*time.Second, false)
		b.dog.Forget(l)
		first := wakeAt()
		for range 1000 {
			l, _ := b.watch("x", 30*time.Second, false)
			b.dog.Forget(l)
		}
		if at := wakeAt(); at != first {
			t.Errorf("short holds moved the next check from %v to %v", first, at)
		}
		time.Sleep(time.Hour)
		if at := wakeAt(); at != never {
			t.Errorf("without holds the next check is at %v; want never", at)
		}
	})
}

// Every hold ends in time, whatever holds are added and removed.
func TestHeapKeepsOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, func(context.Context, []driver.Grant) []error { return nil })
		random := rand.New(rand.NewPCG(1, 2))
		var fixed []*record
		begin := time.Now()
		var ends []time.Duration
		for i := range 500 {
			ttl := time.Duration(1+random.IntN(600)) * time.Second
			l, r := b.watch(fmt.Sprint(i), ttl, true)
			if random.IntN(2) == 0 {
				b.dog.Forget(l)
				continue
			}
			fixed, ends = append(fixed, r), append(ends, ttl-Margin(ttl, -1))
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		for i, r := range fixed {
			if got := r.lostAt.Sub(begin); got != ends[i] {
				t.Errorf("hold %d ended after %v; want %v", i, got, ends[i])
			}
		}
	})
}

// A call whose answer was lost does not keep other holds from being renewed.
func TestHangingCallDoesNotDelayOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, func(ctx context.Context, grants []driver.Grant) []error {
			if grants[0].Name != "hangs" {
				return nil
			}
			<-ctx.Done()
			return []error{ctx.Err()}
		})
		b.watch("hangs", 30*time.Second, false)
		time.Sleep(10*time.Second + time.Millisecond) // its renewal hangs now, for 5 s
		_, other := b.watch("other", 3*time.Second, false)
		time.Sleep(4 * time.Second)
		synctest.Wait()
		if other.lost != nil || other.renewed < 3 {
			t.Errorf("the other hold was renewed %d times, lost: %v", other.renewed, other.lost)
		}
	})
}

// A hold that waited for a sender when the watchdog was closed has no renewal to wait for.
func TestCloseLeavesNoRenewalOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answer := make(chan struct{})
		b := start(t, func(context.Context, []driver.Grant) []error {
			<-answer
			return nil
		})
		const apart = 30 * time.Second // too long for one call to renew two of them
		var last *Hold
		for range maxSenders + 1 {
			last, _ = b.watch("x", 10*time.Minute, false)
			time.Sleep(apart)
		}
		time.Sleep(10*time.Minute/3 - apart + time.Second) // all senders are busy, and the last hold is due
		closed := make(chan struct{})
		go func() {
			b.dog.Close()
			close(closed)
		}()
		synctest.Wait()
		close(answer)
		<-closed
		if renewal := b.dog.Forget(last); renewal != nil {
			select {
			case <-renewal:
			default:
				t.Error("the channel of a renewal that did not begin is open after Close")
			}
		}
	})
}

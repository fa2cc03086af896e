// Package watchdog renews holds and decides when they are lost. One watchdog
// serves all holds of a client with one goroutine, and with a few more while
// renewals are under way. It never waits for the store, so that a store that does
// not answer cannot delay the decision that a hold is lost.
package watchdog

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/alarm"
	"github.com/dlock-go/dlock/internal/clock"
)

// Hold is a grant of a store that is renewed, for its user to embed. The exported
// fields do not change after Watch.
type Hold struct {
	Grant    driver.Grant
	Margin   time.Duration
	Fixed    bool // never renewed
	Observer Observer

	trustDeadline atomic.Int64 // an instant

	// guarded by Watchdog.mu
	due     clock.Instant // when it has to be renewed or declared lost: the order of the heap
	ready   clock.Instant // from when on it is renewed together with another hold that is due
	index   int           // in the heap, from 1; 0 if the hold is not watched
	renewal chan struct{} // of the last renewal; closed when it has ended
	failure error         // of the last renewal, if its outcome is unknown; it does not change after the loss
}

// Observer is called with what happens to a hold. The watchdog holds no locks
// meanwhile. A call must return soon, since other holds wait for it.
type Observer interface {
	// Renewed is called after a renewal, with nil or why its outcome is unknown.
	Renewed(err error)
	// Lost ends the hold, which is not watched any more. It must return at once:
	// thousands of holds may end at the same moment, and each in time.
	Lost(reason error)
	// AfterLoss is called after Lost, when every hold that is due has ended.
	AfterLoss()
}

// Why a hold was lost.
var (
	ErrExpired = errors.New("not renewed in time")
	ErrGone    = errors.New("the store no longer counts the lock as held")
)

// TrustDeadline returns the instant from which the hold counts as lost. It is
// zero before Watch.
func (h *Hold) TrustDeadline() clock.Instant { return clock.Instant(h.trustDeadline.Load()) }

// Expiry returns when the store frees the lock, at the earliest, if it is not renewed any more.
func (h *Hold) Expiry() clock.Instant { return h.TrustDeadline() + h.Margin }

// LastSent returns when the request was sent that granted the lock or renewed it last.
func (h *Hold) LastSent() clock.Instant { return h.Expiry() - h.Grant.TTL }

// Expired returns the reason of a loss at the trust deadline: ErrExpired, and why the last renewal failed.
func (w *Watchdog) Expired(h *Hold) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return h.expired()
}

func (h *Hold) expired() error {
	switch {
	case h.failure == nil:
		return ErrExpired
	case errors.Is(h.failure, driver.ErrClosed): // the store was closed, and not the client
		return fmt.Errorf("%w: the last renewal failed: %v", ErrExpired, h.failure) //nolint:errorlint // on purpose
	}
	return fmt.Errorf("%w: the last renewal failed: %w", ErrExpired, h.failure)
}

// Margin returns how long before the end of its TTL a hold counts as lost: what the
// caller asked for or, if that is negative, 1 % and 2 ms, the drift that Redlock
// implementations agree on. It is at most a third of the TTL. Renewals begin after
// a third, so that a third is always left to try.
func Margin(ttl, asked time.Duration) time.Duration {
	if asked < 0 {
		asked = ttl/100 + 2*time.Millisecond
	}
	return min(asked, ttl/3)
}

// Config configures a watchdog. All fields are required.
type Config struct {
	Clock   *clock.Clock
	Renew   func(ctx context.Context, grants []driver.Grant) []error
	Timeout time.Duration // of one call to Renew
}

// Watchdog watches holds. Create one with [New].
type Watchdog struct {
	Config
	ctx    context.Context // of all renewals
	cancel context.CancelFunc
	alarm  *alarm.Alarm // calls check
	wg     sync.WaitGroup

	mu      sync.Mutex
	holds   holdHeap
	wakeAt  clock.Instant // when check is called next
	pending []*Hold       // due for renewal, to be taken by a sender
	senders int
	// extraSender starts a sender beyond maxSenders; nil if none is to start.
	extraSender *time.Timer
	idle        bool // the last check found no holds
	closed      bool
}

const (
	// tick bounds the time between two checks while any hold is watched. Timers
	// stop while the machine is suspended, and would notice the end of a hold late.
	tick = time.Second
	// batch is the largest number of holds in one call to Renew. Each call has
	// its own sending time, so that in a slow store the trust in the last hold
	// does not count from the first call.
	batch = 1000
	// maxSenders is how many calls to Renew may begin at once. It is more than one, so
	// that a call whose answer was lost does not delay other renewals.
	maxSenders = 8
	// stuckAfter is how long holds wait for one of maxSenders before another sender starts. The
	// calls may all be stuck at one server of the store, and the holds may be at others. The timeout
	// of the calls bounds their number: 100 more with the default.
	stuckAfter = 50 * time.Millisecond

	never = clock.Instant(math.MaxInt64)
)

// New starts a watchdog. Close ends it.
func New(config Config) *Watchdog {
	ctx, cancel := context.WithCancel(context.Background())
	w := &Watchdog{Config: config, ctx: ctx, cancel: cancel, alarm: alarm.New(), wakeAt: never}
	w.wg.Go(func() { w.alarm.Run(ctx, w.check) })
	return w
}

// Close ends all renewals and waits for the background work. Holds that are still
// watched are neither renewed nor reported any more.
func (w *Watchdog) Close() {
	w.mu.Lock()
	w.closed = true
	if w.extraSender != nil {
		w.extraSender.Stop()
	}
	w.mu.Unlock()
	w.cancel()
	w.wg.Wait()
}

// Watch begins to watch a hold. sent is the instant at which the request for its
// grant was sent.
func (w *Watchdog) Watch(h *Hold, sent clock.Instant) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return
	}
	h.trustFrom(sent)
	heap.Push(&w.holds, h)
	w.wakeBy(h.due)
}

// Forget stops watching: no renewal begins after it returns. The channel, if it
// is not nil, is closed when the last renewal has ended and was reported.
func (w *Watchdog) Forget(h *Hold) (renewal <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if h.index > 0 {
		heap.Remove(&w.holds, h.index-1)
	}
	return h.renewal
}

// Holds returns the holds that are watched.
func (w *Watchdog) Holds() []*Hold {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.holds)
}

// trustFrom sets the trust deadline of a hold that was granted or renewed by a request
// that was sent, not answered, at that instant. The next renewal is after a third of the
// TTL, or a little earlier if another hold is due: one call for both is worth more than
// exact spacing. Watchdog.mu is held.
func (h *Hold) trustFrom(sent clock.Instant) {
	h.failure = nil
	ttl := h.Grant.TTL
	h.trustDeadline.Store(int64(sent + ttl - h.Margin))
	if h.Fixed {
		h.renewAt(never, never)
	} else {
		h.renewAt(sent+ttl/3, sent+ttl/3-ttl/30)
	}
}

func (h *Hold) renewAt(at, ready clock.Instant) {
	h.ready = ready
	h.due = min(h.TrustDeadline(), at)
}

// wakeBy makes sure that check is called at that instant or before. w.mu is held.
func (w *Watchdog) wakeBy(at clock.Instant) {
	if at >= w.wakeAt {
		return
	}
	now := w.Clock.Now()
	w.wakeAt = min(at, now+tick)
	w.alarm.NoLaterThan(time.Now().Add(w.wakeAt - now))
}

// check declares holds lost, and renews those that are due. It returns when it has
// to be called again.
func (w *Watchdog) check(time.Time) (next time.Time) {
	w.mu.Lock()
	now := w.Clock.Now()
	var lost []*Hold
	renewing := false
	for len(w.holds) > 0 {
		h := w.holds[0]
		if h.TrustDeadline() <= now {
			heap.Pop(&w.holds)
			lost = append(lost, h)
			continue
		}
		renewing = h.due <= now || renewing && h.ready <= now
		if !renewing {
			break
		}
		w.pending = append(w.pending, h)
		h.renewAt(never, never) // until the outcome is known
		heap.Fix(&w.holds, 0)
	}
	w.send()
	next = w.nextCheck(now)
	w.mu.Unlock()
	w.declareLost(lost, (*Hold).expired)
	return next
}

// nextCheck decides when to check again. If no hold is watched it checks once more
// after a tick before it sleeps until the next Watch: a client that locks and
// unlocks in quick succession would otherwise wake the goroutine each time. w.mu is
// held.
func (w *Watchdog) nextCheck(now clock.Instant) time.Time {
	wasIdle := w.idle
	w.idle = len(w.holds) == 0
	sleep := tick
	switch {
	case w.idle && wasIdle:
		w.wakeAt = never
		return alarm.Never
	case !w.idle:
		sleep = max(0, min(tick, w.holds[0].due-now))
	}
	w.wakeAt = now + sleep
	return time.Now().Add(sleep)
}

// declareLost ends holds. Another goroutine reports the losses afterwards, since a
// report may be slow.
func (w *Watchdog) declareLost(holds []*Hold, reason func(*Hold) error) {
	for _, h := range holds {
		h.Observer.Lost(reason(h))
	}
	if len(holds) > 0 {
		w.wg.Go(func() {
			for _, h := range holds {
				h.Observer.AfterLoss()
			}
		})
	}
}

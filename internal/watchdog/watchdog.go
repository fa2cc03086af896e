// Package watchdog keeps leases alive and decides when they are lost. One
// watchdog serves all leases of a client with one goroutine, and a few more
// while renewals are under way; it never waits for the store itself, so that a
// store that hangs cannot keep a lease from being declared lost in time.
package watchdog

import (
	"container/heap"
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/clock"
)

// Lease is what the watchdog knows of a lease; its owner embeds it. The
// exported fields do not change after Watch.
type Lease struct {
	Grant  driver.Grant
	Margin time.Duration
	Fixed  bool // never renewed
	Guard  Guard

	trusted atomic.Int64 // the instant until which it may be believed in

	// guarded by Watchdog.mu
	due     clock.Instant // when something must be done: the order of the heap
	ready   clock.Instant // from when on it is renewed together with another that is due
	index   int           // in the heap, from 1; 0 when not watched
	renewal chan struct{} // of the last renewal; closed when it has ended
}

// Guard is told what becomes of a lease. The calls come without locks held and
// must return soon, since other leases wait for them.
type Guard interface {
	// Renewed reports a renewal: nil, or why its outcome is unknown.
	Renewed(err error)
	// Lost ends the lease, which is not watched any more. It must take next to
	// no time: thousands may end at once, and each in time.
	Lost(reason error)
	// LossReported is called after Lost, when all that had to end have ended.
	LossReported()
}

// Why a lease was lost.
var (
	ErrExpired = errors.New("not renewed in time")
	ErrTaken   = errors.New("the store says that it is not held")
)

// TrustedUntil returns the instant until which the lease may be believed in.
func (l *Lease) TrustedUntil() clock.Instant { return clock.Instant(l.trusted.Load()) }

// Config is what a watchdog needs to know. All fields are required.
type Config struct {
	Clock   *clock.Clock
	Renew   func(ctx context.Context, grants []driver.Grant) []error
	Timeout time.Duration // of one call to Renew
}

// Watchdog watches leases. See [New].
type Watchdog struct {
	Config
	ctx    context.Context // of all renewals
	cancel context.CancelFunc
	kick   chan struct{} // something is due earlier than the sleep lasts
	wg     sync.WaitGroup

	mu      sync.Mutex
	leases  leaseHeap
	wakeAt  clock.Instant // when the goroutine wakes up by itself
	pending []*Lease      // due for renewal, to be taken by a sender
	senders int
	resting bool // nothing was watched at the last look
	closed  bool
}

const (
	// tick bounds the sleep while anything is watched, since timers stop while
	// the machine is suspended and would then notice the end of a lease late.
	tick = time.Second
	// batch is the largest number of leases in one call to Renew. Each call has
	// its own sending time, so a slow store does not make the trust of the
	// last lease as old as the first call.
	batch = 1000
	// maxSenders limits the concurrent calls to Renew. More than one, so that a
	// call whose answer got lost does not keep others waiting.
	maxSenders = 8

	never = clock.Instant(math.MaxInt64)
)

// New starts a watchdog. Close ends it.
func New(config Config) *Watchdog {
	ctx, cancel := context.WithCancel(context.Background())
	w := &Watchdog{Config: config, ctx: ctx, cancel: cancel, kick: make(chan struct{}, 1), wakeAt: never}
	w.wg.Go(w.run)
	return w
}

// Close ends all renewals and waits for everything in the background. Leases
// that are still watched are neither renewed nor reported any more.
func (w *Watchdog) Close() {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	w.cancel()
	w.wg.Wait()
}

// Watch begins to watch a lease whose grant was sent for at that instant.
func (w *Watchdog) Watch(l *Lease, sent clock.Instant) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return
	}
	l.believe(sent)
	heap.Push(&w.leases, l)
	w.wakeBy(l.due)
}

// Forget stops watching: no renewal begins after it returns. The channel, if it
// is not nil, is closed when the last renewal has ended and was reported.
func (w *Watchdog) Forget(l *Lease) (renewal <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if l.index > 0 {
		heap.Remove(&w.leases, l.index-1)
	}
	return l.renewal
}

// Len counts the leases that are watched.
func (w *Watchdog) Len() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.leases)
}

// believe counts the lease's trust from sent. Watchdog.mu is held, or nobody
// else knows the lease yet.
func (l *Lease) believe(sent clock.Instant) {
	ttl := l.Grant.TTL
	until := trustedUntil(sent, ttl, l.Margin)
	l.trusted.Store(int64(until))
	if l.Fixed {
		l.renewOn(never, never)
	} else {
		l.renewOn(sent+interval(ttl), sent+interval(ttl)-early(ttl))
	}
}

// renewOn plans the next renewal.
func (l *Lease) renewOn(at, ready clock.Instant) {
	l.ready = ready
	l.due = min(l.TrustedUntil(), at)
}

// wakeBy makes sure that the goroutine looks again at that instant. w.mu is held.
func (w *Watchdog) wakeBy(at clock.Instant) {
	if at >= w.wakeAt {
		return
	}
	w.wakeAt = at
	select {
	case w.kick <- struct{}{}:
	default:
	}
}

func (w *Watchdog) run() {
	timer := time.NewTimer(tick)
	defer timer.Stop()
	for {
		sleep := w.look()
		if sleep >= 0 {
			timer.Reset(sleep)
		} else {
			timer.Stop()
		}
		select {
		case <-timer.C:
		case <-w.kick:
		case <-w.ctx.Done():
			return
		}
	}
}

// look does what is due and returns how long there is nothing to do, or -1 for
// as long as nobody kicks.
func (w *Watchdog) look() time.Duration {
	w.mu.Lock()
	now := w.Clock.Now()
	var lost []*Lease
	renewing := false
	for len(w.leases) > 0 {
		l := w.leases[0]
		switch {
		case l.TrustedUntil() <= now:
			heap.Pop(&w.leases)
			lost = append(lost, l)
			continue
		case l.due <= now || renewing && l.ready <= now:
			renewing = true
			w.pending = append(w.pending, l)
			l.renewOn(never, never) // until the outcome is known
			heap.Fix(&w.leases, 0)
			continue
		}
		break
	}
	w.send()
	sleep := w.plan(now)
	w.mu.Unlock()
	w.lose(lost, ErrExpired)
	return sleep
}

// lose ends leases, and then has it reported, by another goroutine: whoever
// reports may be slow.
func (w *Watchdog) lose(leases []*Lease, reason error) {
	for _, l := range leases {
		l.Guard.Lost(reason)
	}
	if len(leases) > 0 {
		w.wg.Go(func() {
			for _, l := range leases {
				l.Guard.LossReported()
			}
		})
	}
}

// plan decides when to look again. With nothing to watch it looks once more
// before the long sleep: a client that locks and unlocks in quick succession
// would otherwise wake this goroutine each time. w.mu is held.
func (w *Watchdog) plan(now clock.Instant) time.Duration {
	if len(w.leases) == 0 && w.resting {
		w.wakeAt = never
		return -1
	}
	w.resting = len(w.leases) == 0
	sleep := tick
	if !w.resting {
		sleep = max(0, min(tick, w.leases[0].due-now))
	}
	w.wakeAt = now + sleep
	return sleep
}

// Leases returns the leases that are watched.
func (w *Watchdog) Leases() []*Lease {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.leases)
}

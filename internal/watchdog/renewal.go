package watchdog

import (
	"container/heap"
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/clock"
)

// renewal is one call to Renew.
type renewal struct {
	holds  []*Hold
	grants []driver.Grant
	done   chan struct{} // closed when the outcome is known
}

var errMiscounted = errors.New("the store did not answer for every lock")

// send starts a sender if holds are pending. Running senders are busy, since an
// idle one ends. If there are many, they may be stuck: then the next one starts a little
// later. w.mu is held.
func (w *Watchdog) send() {
	switch {
	case len(w.pending) == 0 || w.closed:
	case w.senders < maxSenders:
		w.startSender()
	case w.extraSender == nil:
		w.extraSender = time.AfterFunc(stuckAfter, func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.extraSender = nil
			if len(w.pending) > 0 && !w.closed {
				w.startSender()
			}
		})
	}
}

func (w *Watchdog) startSender() {
	w.senders++
	w.wg.Go(w.sender)
}

// sender renews the pending holds batch by batch until none is left.
func (w *Watchdog) sender() {
	for r := w.next(); r != nil; r = w.next() {
		sent := w.Clock.Now()
		errs := w.call(r, sent)
		w.finish(r, sent, errs)
		if w.retire() {
			return
		}
	}
}

// retire reports whether a sender has to end because there are more than maxSenders.
func (w *Watchdog) retire() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.senders <= maxSenders {
		return false
	}
	w.senders--
	w.send()
	return true
}

// next takes a batch of pending holds. It returns nil if none is left or the watchdog is
// closed, which ends the sender.
func (w *Watchdog) next() *renewal {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := &renewal{done: make(chan struct{})}
	for !w.closed && len(w.pending) > 0 && len(r.holds) < batch {
		h := w.pending[0]
		w.pending[0] = nil
		w.pending = w.pending[1:]
		if h.index == 0 {
			continue // forgotten or lost meanwhile
		}
		h.renewal = r.done
		r.holds = append(r.holds, h)
		r.grants = append(r.grants, h.Grant)
	}
	if len(r.holds) == 0 {
		w.pending = nil
		w.senders--
		return nil
	}
	w.send() // another sender, if more holds are pending than fit into a batch
	return r
}

// minCall is the shortest timeout of a call.
const minCall = 50 * time.Millisecond

// call renews a batch. Its timeout is half of the time until the first trust
// deadline, so that a lost answer leaves time for another attempt.
func (w *Watchdog) call(r *renewal, sent clock.Instant) []error {
	left := never
	for _, h := range r.holds {
		left = min(left, h.TrustDeadline()-sent)
	}
	ctx, cancel := context.WithTimeout(w.ctx, min(max(left/2, minCall), w.Timeout))
	defer cancel()
	return w.Renew(ctx, r.grants)
}

// finish applies the three outcomes: renewed, not held, unknown. After the trust deadline
// no answer revives a hold: another owner may have had the lock meanwhile.
func (w *Watchdog) finish(r *renewal, sent clock.Instant, errs []error) {
	switch {
	case errs == nil:
		errs = make([]error, len(r.holds))
	case len(errs) != len(r.holds):
		errs = slices.Repeat([]error{errMiscounted}, len(r.holds))
	}
	var notHeld, expired []*Hold
	w.mu.Lock()
	now := w.Clock.Now()
	earliest := never
	for i, h := range r.holds {
		switch {
		case h.index == 0: // forgotten or lost
		case errors.Is(errs[i], driver.ErrNotHeld):
			heap.Remove(&w.holds, h.index-1)
			notHeld = append(notHeld, h)
		case h.TrustDeadline() <= now:
			h.failure = errs[i]
			heap.Remove(&w.holds, h.index-1)
			expired = append(expired, h)
		case errs[i] == nil:
			h.trustFrom(sent)
		default:
			h.failure = errs[i]
			again := now + retryDelay(h.TrustDeadline()-now)
			h.renewAt(again, again)
		}
		if h.index == 0 { // not watched any more
			r.holds[i] = nil
			continue
		}
		heap.Fix(&w.holds, h.index-1)
		earliest = min(earliest, h.due)
	}
	w.wakeBy(earliest)
	w.mu.Unlock()

	w.declareLost(notHeld, func(*Hold) error { return ErrGone })
	w.declareLost(expired, (*Hold).expired)
	for i, h := range r.holds {
		if h != nil {
			h.Observer.Renewed(errs[i])
		}
	}
	close(r.done)
}

// Limits of the delay before a renewal of unknown outcome is tried again.
const (
	minRetry = 5 * time.Millisecond
	maxRetry = 5 * time.Second
)

// retryDelay is a fraction of the time until the trust deadline, so that attempts
// get denser towards it, with jitter that keeps clients apart.
func retryDelay(left time.Duration) time.Duration {
	delay := min(max(left/8, minRetry), maxRetry)
	return delay/2 + rand.N(delay)
}

package watchdog

import (
	"container/heap"
	"context"
	"errors"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/clock"
)

// renewal is one call to Renew.
type renewal struct {
	leases []*Lease
	grants []driver.Grant
	done   chan struct{} // closed when the outcome is known
}

var errMiscounted = errors.New("the store did not answer for every lease")

// send starts a sender if there is something to send: those that run are busy,
// for an idle one ends. w.mu is held.
func (w *Watchdog) send() {
	if len(w.pending) > 0 && w.senders < maxSenders && !w.closed {
		w.senders++
		w.wg.Go(w.sender)
	}
}

// sender renews what is pending, batch by batch, and ends when nothing is.
func (w *Watchdog) sender() {
	for {
		r := w.next()
		if r == nil {
			return
		}
		sent := w.Clock.Now()
		errs := w.call(r, sent)
		w.finish(r, sent, errs)
	}
}

// next takes a batch of what is pending; nil ends the sender.
func (w *Watchdog) next() *renewal {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := &renewal{done: make(chan struct{})}
	for len(w.pending) > 0 && len(r.leases) < batch {
		l := w.pending[0]
		w.pending[0] = nil
		w.pending = w.pending[1:]
		if l.index == 0 {
			continue // forgotten or lost since
		}
		l.renewal = r.done
		r.leases = append(r.leases, l)
		r.grants = append(r.grants, l.Grant)
	}
	if len(r.leases) == 0 || w.ctx.Err() != nil {
		w.pending = nil
		w.senders--
		return nil
	}
	w.send() // one more, if there is more than this one can take
	return r
}

// minCall is the least time that the store is given to answer.
const minCall = 50 * time.Millisecond

// call renews a batch. It takes at most half of the trust that is left, so that
// an answer that got lost leaves time for another attempt.
func (w *Watchdog) call(r *renewal, sent clock.Instant) []error {
	left := never
	for _, l := range r.leases {
		left = min(left, l.TrustedUntil()-sent)
	}
	ctx, cancel := context.WithTimeout(w.ctx, min(max(left/2, minCall), w.Timeout))
	defer cancel()
	return w.Renew(ctx, r.grants)
}

// finish applies the three outcomes: renewed, not held, unknown.
func (w *Watchdog) finish(r *renewal, sent clock.Instant, errs []error) {
	outcome := func(i int) error {
		switch {
		case errs == nil:
			return nil
		case len(errs) != len(r.leases):
			return errMiscounted
		}
		return errs[i]
	}
	// The reports come after the state is settled, and without the lock.
	reports := make([]error, 0, len(r.leases))
	var told, taken []*Lease

	w.mu.Lock()
	now := w.Clock.Now()
	earliest := never
	for i, l := range r.leases {
		if l.index == 0 {
			continue
		}
		err := outcome(i)
		switch {
		case err == nil:
			l.believe(sent)
			heap.Fix(&w.leases, l.index-1)
		case errors.Is(err, driver.ErrNotHeld):
			heap.Remove(&w.leases, l.index-1)
			taken = append(taken, l)
			continue
		default:
			again := now + retryDelay(l.TrustedUntil()-now)
			l.renewOn(again, again)
			heap.Fix(&w.leases, l.index-1)
		}
		earliest = min(earliest, l.due)
		told = append(told, l)
		reports = append(reports, err)
	}
	w.wakeBy(earliest)
	w.mu.Unlock()

	w.lose(taken, ErrTaken)
	for i, l := range told {
		l.Guard.Renewed(reports[i])
	}
	close(r.done)
}

package dlock

import (
	"errors"
	"fmt"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/crowd"
)

// Fair callers do not wait in the local queue: each has a place of its own in the store's. So that
// thousands of them do not flood the store, the requests of a process for one name wait in a line.
// On a name for which fair callers wait, the others queue, too: see joinQueue.

// errLeftLine is the failure of a request whose caller's context ended in the line.
var errLeftLine = errors.New("the context ended before the request was sent")

// beginRequest blocks until a fair caller may send a request: callers that came earlier go first. The
// time in the line does not count for the RequestTimeout of the request, but a store that answers
// no caller ahead for as long counts as unreachable. After nil, the caller calls endRequest.
func (a *asker) beginRequest() error {
	if a.line == nil {
		return nil
	}
	r := a.line.Begin()
	if r == nil {
		return nil
	}
	a.call.startWaiting()
	err := a.waitInLine(r)
	if err != nil {
		a.line.Cancel(r)
	}
	return err
}

func (a *asker) waitInLine(r *crowd.Request) error {
	c := a.call.client
	entered := c.clock.NoLaterThanNow()
	since := entered // when the store last answered, at the earliest
	silence := time.NewTimer(c.requestTimeout)
	defer silence.Stop()
	for {
		select {
		case <-r.Admitted:
			return nil
		case <-a.call.ctx.Done():
			since = max(since, a.line.LastAnswer())
			if since == entered || c.clock.NoLaterThanNow()-since >= maxHolderAge { // else callers ahead are served
				a.call.noteGivenUp(errNoOutcome, &a.ownState, since)
			}
			return errLeftLine
		case <-c.calls.closing:
			return ErrClosed
		case <-silence.C:
		}
		if a.call.isWaiter { // TryLock waits for no longer
			since = max(since, a.line.LastAnswer())
		}
		left := c.requestTimeout - (c.clock.NoLaterThanNow() - since)
		if left <= 0 {
			return fmt.Errorf("%w within %v", errNoOutcome, c.requestTimeout)
		}
		silence.Reset(left)
	}
}

// endRequest ends a request that failed with err, or succeeded.
func (a *asker) endRequest(err error) {
	if a.line != nil {
		a.line.End(isAnswer(a.call.ctx, err), a.call.client.clock.NoLaterThanNow())
	}
}

// restsInCrowd reports whether a fair waiter need not poll. If its watch keeps its place, the first
// waiter of the process polls for all of them: it notices an outage, after which they poll, too.
func (a *asker) restsInCrowd(delay time.Duration) bool {
	c := a.call.client
	return a.line != nil && c.traits.Queues && !a.line.IsFirst() && c.clock.NoLaterThanNow()-a.line.LastAnswer() < 2*delay
}

// joinQueue makes a ask as a fair caller from the next attempt on if it is not one yet and fair
// callers wait, and reports whether it did. Otherwise fair callers, of which one always waits, would
// have the lock in turn, and the others never. A caller without WithFair keeps its place in the local
// queue and hands over as always, so that its process takes one turn for a time slice. What the old
// owner has in the store, such as the place of an exclusive waiter behind shared holders, is released.
func (a *asker) joinQueue(refusal *driver.HeldError) bool {
	if !a.claim.isFair() {
		a.state().fairWaiters = refusal.Queued && a.call.client.traits.Fair
	}
	if !a.claim.mayQueue(refusal) {
		return false
	}
	a.claim.startAnew()
	a.claim.queued = true
	return true
}

// knowsFairWaiters reports whether a is willing to wait, and a caller before it in the local queue
// found fair callers waiting.
func (a *asker) knowsFairWaiters() bool {
	return a.slot != nil && a.slot.State.fairWaiters && a.claim.settings.waits()
}

package dlock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/backoff"
	"github.com/dlock-go/dlock/internal/clock"
	"github.com/dlock-go/dlock/internal/crowd"
	"github.com/dlock-go/dlock/internal/watchdog"
)

// claim is what it takes to ask the store for one grant again and again: the grant's owner, what is left
// to undo, a subscription. It belongs to a bid, which may leave it to another one: see pass.
type claim struct {
	client   *Client
	name     string
	settings *settings

	grant     *grant            // that is asked for; nil before the first attempt
	first     *tenure           // of the grant
	asked     clock.Instant     // when the last attempt was sent
	refusal   *driver.HeldError // of the last attempt
	needsUndo bool              // an attempt left something in the store, or may still do so
	due       clock.Instant     // when the next attempt is worth it, while the claim waits; otherwise zero
	queued    bool              // it asks as a fair caller, because fair callers wait: see joinQueue

	wake    chan struct{}
	unwatch func() // nil without a subscription
	poll    backoff.Backoff
}

const (
	minPoll = 5 * time.Millisecond
	// maxSilentPoll is maxPoll for a holder whose release sends no notification:
	// programs that share locks with such holders expect it to be short.
	maxSilentPoll = 200 * time.Millisecond
	// maxSleep limits the sleep of a waiter that has a subscription.
	maxSleep = 30 * time.Second
	// minWatchedSleep is its minimum for a short TTL.
	minWatchedSleep = time.Second
	// maxSubscribe limits one attempt to subscribe, because the waiter does not try
	// to acquire meanwhile.
	maxSubscribe = time.Second
	// expiryDelay spreads the attempts of waiters after an expiry.
	expiryDelay = 20 * time.Millisecond
)

func (cl *claim) init(c *Client, name string, s *settings) {
	cl.client, cl.name, cl.settings = c, name, s
	cl.poll.Min, cl.poll.Max = minPoll, maxPoll
}

// attempt asks the store for no longer than limit. sent is when, or a moment before.
func (cl *claim) attempt(ctx context.Context, sent clock.Instant, limit time.Duration) error {
	c := cl.client
	req := cl.attemptRequest()
	limited, timer := c.withTimeout(ctx, limit)
	defer timer.End()
	cl.asked = sent
	granted, err := c.store.Acquire(limited, req)
	if err != nil {
		cl.noteFailure(req.Queue, err)
		return c.explain(ctx, limited, err)
	}
	return cl.accept(granted, sent)
}

func (cl *claim) attemptRequest() driver.Request {
	if cl.grant == nil {
		cl.grant, cl.first = newGrant(cl.client, cl.name, cl.settings)
	}
	req := cl.request()
	if cl.client.traits.ReportsLoss {
		req.Lost = cl.grant.newAttempt()
	}
	return req
}

func (cl *claim) request() driver.Request {
	return driver.Request{Name: cl.name, Owner: cl.grant.Grant.Owner, TTL: cl.settings.ttl,
		Mode: cl.settings.mode, Holder: cl.settings.holder, Fair: cl.isFair(), Queue: cl.queues()}
}

// isFair reports whether the claim asks the store as a fair caller.
func (cl *claim) isFair() bool { return cl.settings.fair || cl.queued }

// alwaysQueues reports whether the store keeps a place for the claim whatever the mode of the holder is.
func (cl *claim) alwaysQueues() bool { return cl.isFair() || cl.client.traits.Queues }

// queues reports whether a refused attempt leaves a place in the store's queue. An exclusive
// attempt does so at least if shared holders refuse it.
func (cl *claim) queues() bool {
	exclusive := cl.settings.mode == driver.Mode{}
	return (cl.alwaysQueues() || cl.client.traits.Shared && exclusive) && cl.settings.waits()
}

// noteFailure records whether an attempt that failed has to be undone: the store may carry it out,
// or keeps a place in its queue if the request had Queue.
func (cl *claim) noteFailure(queue bool, err error) {
	refusal, refused := errors.AsType[*driver.HeldError](err)
	placed := cl.alwaysQueues() || refused && refusal.Mode.Shared
	if queue && placed || !driver.Unchanged(err) {
		cl.needsUndo = true
	}
}

// accept checks what the store granted. A grant that arrives after its trust
// deadline is rejected, and so is a lock that the store revoked before it was granted.
func (cl *claim) accept(granted driver.Grant, sent clock.Instant) error {
	c, g := cl.client, cl.grant
	cl.needsUndo = true
	g.Grant, g.takenAt = granted, sent
	g.Margin = watchdog.Margin(granted.TTL, cl.settings.margin)
	if !c.traits.Local && c.clock.Now() >= sent+granted.TTL-g.Margin {
		return fmt.Errorf("%w: the answer took longer than the lease lasts", ErrUnreachable)
	}
	return nil
}

// startAnew makes the next attempt one of a new owner. What the attempts so far may have left in the
// store is released in the background.
func (cl *claim) startAnew() {
	if cl.needsUndo {
		cl.client.releaseInBackground(cl.grant.Grant, cl.client.requestTimeout)
	}
	cl.unsubscribe() // from what the old owner waits for
	cl.grant, cl.first, cl.needsUndo = nil, nil, false
}

// spent records that the claim's grant has ended, or is held: there is nothing to undo.
func (cl *claim) spent() {
	cl.needsUndo, cl.refusal = false, nil
	cl.startAnew()
}

// mayQueue reports whether err is a refusal that says that fair callers wait, and the claim would queue
// behind them.
func (cl *claim) mayQueue(err error) bool {
	refusal, refused := errors.AsType[*driver.HeldError](err)
	return refused && refusal.Queued && cl.client.traits.Fair && !cl.alwaysQueues() && cl.settings.waits()
}

// subscribe makes the store wake the waiter when another attempt may succeed.
func (cl *claim) subscribe(ctx context.Context) error {
	c := cl.client
	limited, timer := c.withTimeout(ctx, min(c.requestTimeout, maxSubscribe))
	defer timer.End()
	if cl.wake == nil {
		cl.wake = make(chan struct{}, 1)
	}
	unwatch, err := c.watcher.Watch(limited, cl.request(), waker(cl.wake))
	if err == nil {
		cl.unwatch, cl.due = unwatch, 0
	}
	return err
}

func (cl *claim) unsubscribe() {
	if cl.unwatch != nil {
		cl.unwatch()
		cl.unwatch = nil
	}
}

// waker returns what a store calls to wake a waiter. It refers to the channel and not
// to the claim, so that a call that does not wait stays off the heap.
func waker(wake chan<- struct{}) func() {
	return func() {
		select {
		case wake <- struct{}{}:
		default:
		}
	}
}

// contendedDelay is how long to sleep before the next attempt if waiters have to poll because the
// lock changes hands often, and otherwise zero.
func (cl *claim) contendedDelay(state *queueState) time.Duration {
	if cl.alwaysQueues() {
		return 0
	}
	return state.PollDelay(cl.client.clock.NoLaterThanNow(), &cl.client.slices)
}

// pollDelay is the time between two attempts without a subscription.
func (cl *claim) pollDelay(state *queueState) time.Duration {
	delay := cl.contendedDelay(state)
	if delay == 0 {
		delay = cl.poll.Next()
	}
	if left := cl.refusal.Remaining; left > 0 && left < delay {
		delay = backoff.Jitter(left) + minPoll
	}
	return cl.keepPlace(delay)
}

// watchDelay is how long to sleep without a notification. Even if the store notifies
// of every change, the waiter polls a few times in a TTL: a server that is down
// notifies no waiter, and a connection may be dead without a sign of it.
func (cl *claim) watchDelay() time.Duration {
	traits := &cl.client.traits
	delay := backoff.Jitter(min(max(cl.settings.ttl/3, minWatchedSleep), maxSleep))
	if !traits.WatchesExpiry {
		left := cl.refusal.Remaining
		if left <= 0 {
			left = maxPoll // the expiry is unknown
		}
		delay = min(delay, left+backoff.Jitter(min(left/10, expiryDelay)))
	}
	if traits.Queues {
		return delay // the watch keeps the place
	}
	return cl.keepPlace(delay)
}

// keepPlace shortens the delay of a waiter that has a place in the store's queue. The place lasts
// for a PlaceTTL after each attempt.
func (cl *claim) keepPlace(delay time.Duration) time.Duration {
	if cl.isFair() || cl.refusal.Mode.Shared {
		return min(delay, backoff.Jitter(driver.PlaceTTL(cl.settings.ttl)/3))
	}
	return delay
}

// asker is the part of a bid that asks the store, and waits after a refusal. It knows nothing of tenures.
type asker struct {
	call          call
	claim         claim
	slot          *slot         // in the local queue; nil if the bid does not occupy it
	ownState      queueState    // of a bid without a slot
	line          *crowd.Caller // of a fair bid; nil if it is not fair, or the store is local
	waitedLocally bool          // for another caller of this process
	entered       clock.Instant // when the bid found the slot free, just before its first attempt; otherwise zero
}

// state returns what a knows about the contention for its name.
func (a *asker) state() *queueState {
	if a.slot != nil {
		return &a.slot.State
	}
	return &a.ownState
}

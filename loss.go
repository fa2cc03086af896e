package dlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/dlock-go/dlock/driver"
)

// Renewed implements watchdog.Observer.
func (h *hold) Renewed(err error) {
	c := h.client
	if err != nil {
		c.logger.Warn("dlock: renewal failed, trying again", "name", h.name, "token", h.token,
			"trusted_for", h.TrustDeadline()-c.clock.NoLaterThanNow(), "err", err)
	}
	call(c.hooks.Renewed, Event{Name: h.name, Token: h.token, Err: err})
}

// renew is the watchdog's call to the store. An error because its time has ended says that the store
// did not answer.
func (c *Client) renew(ctx context.Context, grants []driver.Grant) []error {
	errs := c.store.Renew(ctx, grants)
	for i, err := range errs {
		if err != nil && ctx.Err() != nil && !errors.Is(err, ErrUnreachable) && !isAnswer(ctx, err) {
			errs[i] = fmt.Errorf("%w: no answer in time: %w", ErrUnreachable, err)
		}
	}
	return errs
}

// Lost implements watchdog.Observer. It ends the context at once. The next waiter of this
// process asks the store, which decides whether the lock is free.
func (h *hold) Lost(reason error) {
	if h.end(fmt.Errorf("%w: %q: %w", ErrLost, h.name, reason)) {
		h.lossPending.Store(true)
		h.leaveSlot()
	}
}

// AfterLoss implements watchdog.Observer. It reports a loss once.
func (h *hold) AfterLoss() {
	if !h.lossPending.Swap(false) {
		return
	}
	c, err := h.client, h.endCause()
	c.logger.Warn("dlock: lock lost", "name", h.name, "token", h.token, "reason", err)
	for _, lost := range h.group.endedBy(h) {
		call(c.hooks.Lost, Event{Name: h.name, Token: lost.token, Err: err})
	}
}

// lose declares the hold lost. It is for losses that the watchdog does not notice by itself.
func (h *hold) lose(reason error) {
	h.Lost(reason)
	h.client.watchdog.Forget(&h.Hold) // after Lost: startLease may have begun to watch it before
	h.AfterLoss()
}

// expireIfOverdue declares the hold lost after its trust deadline. The watchdog does
// the same, but the operating system may have kept it from running.
func (h *hold) expireIfOverdue() {
	if h = h.leaderOrSelf(); h.client.clock.Now() >= h.TrustDeadline() {
		h.lose(h.client.watchdog.Expired(&h.Hold))
	}
}

var errRevoked = errors.New("the store revoked the lock")

// revocation waits for the store's report that it has revoked the grant of an attempt.
type revocation struct {
	mu       sync.Mutex
	hold     *hold // that has the grant; during a hand-over still the previous one; nil before the first lease
	reported bool
}

// report is called by the store. It ends the lease that has the grant.
func (r *revocation) report() {
	r.mu.Lock()
	h := r.hold
	r.reported = true
	r.mu.Unlock()
	if h != nil {
		h.lose(errRevoked)
	}
}

// err returns an error if the store has revoked the grant. r may be nil.
func (r *revocation) err() error { return r.reportTo(nil) }

// reportTo makes a later report end the lease of h. A nil h changes nothing. It fails if the store
// has revoked the grant before. r may be nil.
func (r *revocation) reportTo(h *hold) error {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.reported {
		return fmt.Errorf("%w: %w before the lease began; trying again may help", ErrUnreachable, errRevoked)
	}
	r.hold = cmp.Or(h, r.hold)
	return nil
}

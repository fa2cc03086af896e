package dlock

import (
	"errors"
	"fmt"
	"sync"

	"github.com/dlock-go/dlock/internal/watchdog"
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

// Lost implements watchdog.Observer. It ends the context at once. The next waiter of this
// process asks the store, which decides whether the lock is free.
func (h *hold) Lost(reason error) {
	if h.end(fmt.Errorf("%w: %w", ErrLost, reason)) {
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
	call(c.hooks.Lost, Event{Name: h.name, Token: h.token, Err: err})
}

// lose ends a hold whose loss the watchdog has not noticed.
func (h *hold) lose(reason error) {
	h.client.dog.Forget(&h.Hold)
	h.Lost(reason)
	h.AfterLoss()
}

// expireIfOverdue declares the hold lost after its trust deadline. The watchdog does
// the same, but the operating system may have kept it from running.
func (h *hold) expireIfOverdue() {
	if h.client.clock.Now() >= h.TrustDeadline() {
		h.lose(watchdog.ErrExpired)
	}
}

var errRevoked = errors.New("the store revoked the lock")

// revocation is the store's report that it revoked the grant of an attempt.
type revocation struct {
	mu       sync.Mutex
	hold     *hold // whose lease has the grant; nil before it begins, and during a hand-over
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

// reportTo makes a later report end the lease of h. With nil a later report ends no lease. It
// fails if the store has reported before.
func (r *revocation) reportTo(h *hold) error {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.reported {
		return fmt.Errorf("%w: %w before it was granted", ErrUnreachable, errRevoked)
	}
	r.hold = h
	return nil
}

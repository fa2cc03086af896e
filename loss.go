package dlock

import (
	"errors"
	"fmt"

	"github.com/dlock-go/dlock/internal/watchdog"
)

// Renewed implements watchdog.Observer.
func (h *hold) Renewed(err error) {
	c := h.client
	if err != nil {
		c.logger.Warn("dlock: renewal failed, trying again", "name", h.name, "token", h.Grant.Token,
			"trusted_for", h.TrustDeadline()-c.clock.NoLaterThanNow(), "err", err)
	}
	call(c.hooks.Renewed, Event{Name: h.name, Token: h.Grant.Token, Err: err})
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
	c.logger.Warn("dlock: lock lost", "name", h.name, "token", h.Grant.Token, "reason", err)
	call(c.hooks.Lost, Event{Name: h.name, Token: h.Grant.Token, Err: err})
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

// newAttempt begins a new attempt, and returns the function with which the store reports
// that it revoked the attempt's grant. Only the report for the last attempt counts.
func (h *hold) newAttempt() (lost func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.attempts++
	h.revoked = false
	attempt := h.attempts
	return func() { h.noteRevoked(attempt) }
}

// noteRevoked ends the lease. Before the lease has begun, it leaves that to unlessRevoked.
func (h *hold) noteRevoked(attempt int) {
	h.mu.Lock()
	counts, begun := attempt == h.attempts, h.begun
	h.revoked = h.revoked || counts
	h.mu.Unlock()
	if counts && begun {
		h.lose(errRevoked)
	}
}

// unlessRevoked fails if the store has revoked the grant of the last attempt. With begins,
// the lease begins: a later report ends it.
func (h *hold) unlessRevoked(begins bool) error {
	if !h.client.traits.ReportsLoss {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.revoked {
		return fmt.Errorf("%w: %w before it was granted", ErrUnreachable, errRevoked)
	}
	h.begun = begins
	return nil
}

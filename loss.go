package dlock

import (
	"errors"
	"fmt"

	"github.com/dlock-go/dlock/internal/watchdog"
)

// Renewed implements watchdog.Guard.
func (h *hold) Renewed(err error) {
	c := h.client
	if err != nil {
		c.logger.Warn("dlock: renewal failed, trying again", "name", h.name, "token", h.Grant.Token,
			"trusted_for", h.TrustDeadline()-c.clock.NoLaterThanNow(), "err", err)
	}
	call(c.hooks.Renewed, Event{Name: h.name, Token: h.Grant.Token, Err: err})
}

// Lost implements watchdog.Guard. It ends the context at once. The next waiter of this
// process asks the store, which decides whether the lock is free.
func (h *hold) Lost(reason error) {
	if h.end(fmt.Errorf("%w: %w", ErrLost, reason)) {
		h.lossPending.Store(true)
		h.leaveSlot()
	}
}

// ReportLoss implements watchdog.Guard. It reports a loss once.
func (h *hold) ReportLoss() {
	if !h.lossPending.Swap(false) {
		return
	}
	c, err := h.client, h.endCause()
	c.logger.Warn("dlock: lock lost", "name", h.name, "token", h.Grant.Token, "reason", err)
	call(c.hooks.Lost, Event{Name: h.name, Token: h.Grant.Token, Err: err})
}

// lose ends a hold whose loss the watchdog has not noticed.
func (h *hold) lose(reason error) {
	h.client.dog.Forget(&h.Lease)
	h.Lost(reason)
	h.ReportLoss()
}

// expireIfOverdue declares the hold lost after its trust deadline. The watchdog does
// the same, but the operating system may have kept it from running.
func (h *hold) expireIfOverdue() {
	if h.client.clock.Now() >= h.TrustDeadline() {
		h.lose(watchdog.ErrExpired)
	}
}

var errRevoked = errors.New("the store revoked the lock")

// lossReporter begins a new attempt, and returns the function with which the store
// reports that it revoked the attempt's grant. Only the report for the last attempt
// counts. A report before the lease has begun is left to beginReportingLoss.
func (h *hold) lossReporter() func() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.attempts++
	h.reported = false
	attempt := h.attempts
	return func() { h.reportedLost(attempt) }
}

func (h *hold) reportedLost(attempt int) {
	h.mu.Lock()
	counts, begun := attempt == h.attempts, h.begun
	h.reported = h.reported || counts
	h.mu.Unlock()
	if counts && begun {
		h.lose(errRevoked)
	}
}

// lossReported reports whether the store revoked the grant of the last attempt.
func (h *hold) lossReported() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.reported
}

// beginReportingLoss makes later reports end the lease. If the store has reported a
// loss before, it ends the hold.
func (h *hold) beginReportingLoss() error {
	h.mu.Lock()
	h.begun = true
	reported := h.reported
	h.mu.Unlock()
	if !reported {
		return nil
	}
	h.client.dog.Forget(&h.Lease)
	h.end(fmt.Errorf("%w: %w", ErrLost, errRevoked))
	return h.endCause()
}

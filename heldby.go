package dlock

import (
	"cmp"
	"errors"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// excludes returns why caller cannot have the lock while h occupies the slot, or nil if that is
// not known. h may be nil. A granted h that the caller can share the lock with does not exclude the
// caller: h is about to leave the slot. An exclusive h that shared holders refused excludes shared
// callers only if h waits, because only then it has a place in the store.
func (h *hold) excludes(caller *hold) error {
	held := h.heldError()
	if held == nil {
		return nil
	}
	mode, wanted := h.settings.mode, caller.settings.mode
	switch {
	case mode.Limit != wanted.Limit:
		return &driver.ModeError{Name: h.name, Mode: mode}
	case h.wasGranted() && mode == wanted && mode != (driver.Mode{}):
		return nil
	case held.Mode.Shared && wanted.Shared && !mode.Shared && !h.settings.waits():
		return nil
	}
	return held
}

// heldError describes the lock that h has or waits for, to another caller of this process. It
// returns nil if the store has not said yet that the lock is held. h may be nil.
func (h *hold) heldError() *driver.HeldError {
	if h == nil {
		return nil
	}
	if h.wasGranted() {
		if h.endCause() != nil {
			return nil //nolint:nilerr // the outcome of the release is not known yet
		}
		return h.describe()
	}
	return h.refusal.Load()
}

// describe describes the lock that h has or had.
func (h *hold) describe() *driver.HeldError {
	left := h.TrustDeadline() - h.client.clock.NoLaterThanNow()
	return &driver.HeldError{Name: h.name, Mode: h.settings.mode, Token: h.token, Holder: h.holder(), Remaining: max(0, left)}
}

// maxHolderAge is how long ago the store may have named the holder of recentHolder.
const maxHolderAge = 250 * time.Millisecond

// lastHolder returns the last known holder for the error of h, whose wait ends while a call of this
// process to the store is unanswered. It returns nil if the occupant knows none and none was known
// within maxHolderAge.
func (h *hold) lastHolder() *driver.HeldError {
	callers := h.client.queue.Callers(h.name)
	held, _ := errors.AsType[*driver.HeldError](callers.Occupant.excludes(h))
	return cmp.Or(held, callers.Occupant.recentHolder(h), callers.Previous.recentHolder(h))
}

// recentHolder describes h if it has the lock or has just released it, or else the holder that h has
// just given up waiting for. It returns nil if the lock was lost, or may not exclude caller. h may be
// nil.
func (h *hold) recentHolder(caller *hold) *driver.HeldError {
	if h == nil {
		return nil
	}
	h.mu.Lock()
	since, cause, mode := h.ended, h.cause, h.storedModeLocked()
	h.mu.Unlock()
	held, wanted := h.refusal.Load(), caller.settings.mode
	if h.wasGranted() {
		held = h.describe()
		held.Mode = mode
		if cause == nil {
			since = h.lastSent()
		}
	}
	switch {
	case held == nil || since == 0 || h.client.clock.Now()-since >= maxHolderAge || errors.Is(cause, ErrLost):
		return nil
	case mode.Limit != wanted.Limit || held.Mode.Shared && wanted.Shared:
		return nil
	}
	return held
}

package dlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/watchdog"
)

// Downgrade makes an exclusive lease a shared one in one atomic step: no other exclusive holder
// comes in between. Waiting shared callers are admitted. All leases that re-entered the lock
// are shared from then on. Token and context stay. A shared lease stays as it is. If Downgrade
// fails, the lease counts as shared, because the store may have changed it; Downgrade may be
// called again. If the lock was lost or unlocked, the error wraps [ErrNotHeld]; if ctx ended, it wraps
// the cause of ctx.
func (l *Lease) Downgrade(ctx context.Context) error {
	h := l.hold
	c := h.client
	downgrader, ok := c.store.(driver.Downgrader)
	if !ok || !c.traits.Shared || h.settings.mode.Limit > 0 {
		return c.unsupported("a downgrade")
	}
	h.expireIfOverdue()
	cause := h.endCause()
	if cause == nil && h.settings.mode.Shared {
		return nil
	}
	h.mu.Lock()
	if cause = cmp.Or(h.cause, cause); cause != nil {
		h.mu.Unlock()
		return fmt.Errorf("downgrading %q: %w: %w", h.name, ErrNotHeld, cause)
	}
	h.downgraded = true
	slot := h.slot.Swap(nil) // so that a concurrent Unlock does not hand the lock over
	h.mu.Unlock()
	err := c.callStore(ctx, func(ctx context.Context) error {
		err := downgrader.Downgrade(ctx, h.Grant)
		if errors.Is(err, ErrNotHeld) {
			h.lose(watchdog.ErrGone)
		}
		return err
	})
	if slot != nil {
		slot.Leave(true) // shared callers of this process ask the store
		h.outcome.announce()
	}
	if err != nil {
		return fmt.Errorf("downgrading %q: %w", h.name, err)
	}
	return nil
}

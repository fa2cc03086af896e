package sqlservers

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// In these tests an administrator's open transaction keeps rows locked, and calls about other rows go on.

// TestRenewalsInBothModesBesideALockedRow: a transaction that keeps the row of an exclusive lock locked
// does not delay the renewal of shared locks in the same call.
func TestRenewalsInBothModesBesideALockedRow(t *testing.T) {
	onRow(t, func(t *testing.T, s target) {
		store := s.open(t)
		grants := acquire(t, store, "exclusive")
		share, err := store.Acquire(within(t), requestIn(shared, "shared"))
		check(t, err)
		defer lockRows(t, s.admin(t), "dlock_locks", "exclusive")()
		// It is less than a renewal waits for a row at the server.
		ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer cancel()
		errs := store.Renew(ctx, append(grants, share))
		if len(errs) != 2 || errs[1] != nil || errs[0] == nil || errors.Is(errs[0], driver.ErrNotHeld) {
			t.Errorf("Renew: %v; want an unknown outcome for the lock whose row is locked, and nil for the other", errs)
		}
	})
}

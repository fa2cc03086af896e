package sqllock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/sqldb"
)

// fail turns an error of the database into one of the contract.
func (s *Store) fail(ctx context.Context, op string, err error) error {
	switch {
	case errors.Is(err, driver.ErrHeld), errors.Is(err, driver.ErrNotHeld):
		return err
	case s.closed.Load():
		return driver.ErrClosed
	case ctx.Err() != nil:
		return fmt.Errorf("%s: %w", op, context.Cause(ctx))
	case errors.Is(err, sqldb.ErrReadOnly):
		return fmt.Errorf("%w: %s: %w", driver.ErrMisconfigured, op, err)
	case errors.Is(err, driver.ErrUnsupported):
		return fmt.Errorf("%s: %w", op, err)
	}
	return s.facts.Classify(err).Describe(op, err)
}

// millis returns a TTL as the database counts it. It adds one, since the clock's own
// milliseconds are rounded down and a lock must not end early.
func millis(ttl time.Duration) int64 {
	return int64((ttl+time.Millisecond-1)/time.Millisecond) + 1
}

// remaining returns a time of the database as the contract counts it.
func remaining(ms int64) time.Duration { return time.Duration(ms) * time.Millisecond }

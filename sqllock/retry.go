package sqllock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/sqldb"
)

// busyLimit is how long a call goes on trying a database that is locked.
const busyLimit = 10 * time.Second

// backgroundLimit is how long something may take that nobody waits for. Over a
// connection that died in silence it would never end, and keep its slot from those
// who do.
const backgroundLimit = 5 * time.Second

// background is the context of one step of what nobody waits for.
func (s *Store) background() (context.Context, context.CancelFunc) {
	return context.WithTimeout(s.ctx, backgroundLimit)
}

// busyPause is between two tries, on top of the database's own busy timeout.
const busyPause = time.Millisecond

// write runs fn, which writes, as one of the writers of this store. A database
// that admits one writer at a time makes the others sleep between tries;
// waiting here is over the moment the writer is done.
func (s *Store) write(ctx context.Context, op string, fn func() error) error {
	select {
	case s.writing <- struct{}{}:
		defer func() { <-s.writing }()
		return s.perform(ctx, op, fn)
	case <-ctx.Done():
		return s.fail(ctx, op, ctx.Err())
	}
}

// read runs fn, which reads. There is a limit to how many do: a pool without one
// would open a connection for each of thousands of waiters.
func (s *Store) read(ctx context.Context, op string, fn func() error) error {
	select {
	case s.reading <- struct{}{}:
		defer func() { <-s.reading }()
		return s.perform(ctx, op, fn)
	case <-ctx.Done():
		return s.fail(ctx, op, ctx.Err())
	}
}

// perform runs fn. What it returns is ready for the caller.
func (s *Store) perform(ctx context.Context, op string, fn func() error) error {
	if s.closed.Load() {
		return driver.ErrClosed
	}
	if err := s.persist(ctx, fn); err != nil {
		return s.fail(ctx, op, err)
	}
	return nil
}

// persist runs fn until it does not fail for being in the way of somebody else.
func (s *Store) persist(ctx context.Context, fn func() error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	err := fn()
	if err == nil {
		return nil
	}
	for start := time.Now(); s.facts.Classify(err).Retry && time.Since(start) < busyLimit; {
		select {
		case <-ctx.Done():
			return err
		case <-time.After(busyPause + rand.N(busyPause)):
		}
		if err = fn(); err == nil {
			return nil
		}
	}
	return err
}

// fail turns what the database said into what the contract says.
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

// millis is ttl as the database counts it. It adds one, since the clock's own
// milliseconds are rounded down and a lock must not end early.
func millis(ttl time.Duration) int64 {
	return int64((ttl+time.Millisecond-1)/time.Millisecond) + 1
}

// remaining is a time of the database as the contract counts it.
func remaining(ms int64) time.Duration { return time.Duration(ms) * time.Millisecond }

package sqllock

import (
	"context"
	"math"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/sqllock/internal/batch"
	"github.com/dlock-go/dlock/sqllock/internal/row"
	"github.com/dlock-go/dlock/sqllock/internal/statement"
)

// Release implements driver.Store. Without a token it first waits for attempts of the
// owner that are still under way.
func (s *Store) Release(ctx context.Context, grant driver.Grant) error {
	if err := checkContext(ctx, "release"); err != nil {
		return err
	}
	settled, err := s.attempts.Settle(ctx, grant)
	if err != nil {
		return err
	}
	defer settled()
	downgraded := s.downgraded.Has(grant.Owner)
	defer s.downgraded.Put(grant.Owner, false)
	released, err := s.releaseLock(ctx, &grant)
	switch {
	case err != nil:
		return err
	case released && grant.Token != 0:
		// A granted owner has no place, except after a downgrade: an attempt that was carried out
		// late may have queued it, and the place would keep new shared holders out.
		if downgraded {
			_ = s.giveUpPlace(ctx, &grant) // a place that could not be deleted expires
		}
		return nil
	}
	err = s.giveUpPlace(ctx, &grant)
	if err == nil && !released {
		err = driver.ErrNotHeld
	}
	return err
}

// releaseLock ends the lock, and reports whether grant.Owner held it.
func (s *Store) releaseLock(ctx context.Context, grant *driver.Grant) (released bool, err error) {
	if !isListed(grant) {
		h := &statement.Hold{Key: statement.Key{Name: grant.Name, Owner: grant.Owner.Hex()}, Token: lastToken(grant)}
		released, err = s.runAndNotify(ctx, "release", &batch.Job{Name: h.Name, Release: h, Urgent: true}, func(ctx context.Context, run statement.Runner) (bool, error) {
			return run.Changed(ctx, statement.Release, h.Name, h.Owner, h.Token)
		})
	}
	if err == nil && !released {
		released, err = s.releaseShare(ctx, grant)
	}
	return released, err
}

func (s *Store) giveUpPlace(ctx context.Context, grant *driver.Grant) error {
	s.places.Remove(grant.Owner.Hex())
	_, err := s.runStatement(ctx, "release", grant.Name, statement.GiveUpPlace, grant.Name, grant.Owner.Hex())
	return err
}

// Break implements driver.Breaker.
func (s *Store) Break(ctx context.Context, name string, token uint64) error {
	first := int64(min(token, math.MaxInt64-tokenStep))
	last := first + tokenStep - 1 // a row has the last of its tokens
	broken, err := s.runStatement(ctx, "break", name, statement.Break, name, first, last)
	if err == nil && !broken {
		broken, err = s.editShares(ctx, "break", name, func(lock *row.Lock) bool { return lock.End(first, last) })
	}
	if err == nil && !broken {
		err = driver.ErrNotHeld
	}
	return err
}

// undo ends what owner has, on behalf of an attempt that may be carried out
// late. It works while the store is being closed.
func (s *Store) undo(ctx context.Context, name string, owner driver.Owner) error {
	var released, deleted bool
	err := s.writeAnyway(ctx, func() (err error) {
		run := s.run()
		if released, err = run.Changed(ctx, statement.Release, name, owner.Hex(), int64(0)); err != nil {
			return err
		}
		if !released {
			if released, err = s.undoShare(ctx, run, name, owner); err != nil {
				return err
			}
		}
		deleted, err = run.Changed(ctx, statement.GiveUpPlace, name, owner.Hex())
		return err
	})
	if released || deleted {
		s.waiters.notify(name)
	}
	if err == nil && !released {
		return driver.ErrNotHeld
	}
	return err
}

func (s *Store) undoShare(ctx context.Context, run statement.Runner, name string, owner driver.Owner) (released bool, err error) {
	if has, err := hasShare(ctx, run, name, owner); err != nil || !has {
		return false, err
	}
	err = s.inTx(ctx, func(run statement.Runner) error {
		released, err = editSharesIn(ctx, run, name, func(lock *row.Lock) bool { return lock.Release(owner.Hex(), 0) })
		return err
	})
	return released, err
}

package sqllock

import (
	"context"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/sqllock/internal/batch"
	"github.com/dlock-go/dlock/sqllock/internal/statement"
)

// Release implements driver.Store. It waits for attempts of the owner that share a
// transaction with others and go on.
func (s *Store) Release(ctx context.Context, grant driver.Grant) error {
	if err := ended(ctx, "release"); err != nil {
		return err
	}
	settled, err := s.attempts.Settle(ctx, grant)
	if err != nil {
		return err
	}
	defer settled()
	owner := grant.Owner.Hex()
	released, err := s.change(ctx, "release", &batch.Job{Name: grant.Name}, statement.Release, grant.Name, owner, lastToken(&grant))
	if err != nil {
		return err
	}
	if released {
		s.waiters.notify(grant.Name)
		if grant.Token != 0 { // its owner left the queue
			return nil
		}
	}
	s.places.Remove(owner)
	left, err := s.change(ctx, "release", &batch.Job{Name: grant.Name}, statement.GiveUp, grant.Name, owner)
	if left {
		s.waiters.notify(grant.Name)
	}
	if err == nil && !released {
		err = driver.ErrNotHeld
	}
	return err
}

// Break implements driver.Breaker.
func (s *Store) Break(ctx context.Context, name string, token uint64) error {
	broken, err := s.change(ctx, "break", &batch.Job{Name: name}, statement.Break, name, int64(token))
	if broken {
		s.waiters.notify(name)
	}
	if err == nil && !broken {
		err = driver.ErrNotHeld
	}
	return err
}

// undo gives up what owner has, on behalf of an attempt that may be carried out
// late. It works while the store is being closed.
func (s *Store) undo(ctx context.Context, name string, owner driver.Owner) error {
	var released, left bool
	err := s.writeAnyway(ctx, func() (err error) {
		run := s.run()
		if released, err = run.Changed(ctx, statement.Release, name, owner.Hex(), int64(0)); err != nil {
			return err
		}
		left, err = run.Changed(ctx, statement.GiveUp, name, owner.Hex())
		return err
	})
	if released || left {
		s.waiters.notify(name)
	}
	if err == nil && !released {
		return driver.ErrNotHeld
	}
	return err
}

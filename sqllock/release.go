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
	released, err := s.change(ctx, "release", &batch.Job{Name: grant.Name}, statement.Release, grant.Name, owner, int64(grant.Token))
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
	switch {
	case err != nil:
		return err
	case left:
		s.waiters.notify(grant.Name)
	}
	if !released {
		return driver.ErrNotHeld
	}
	return nil
}

// Break implements driver.Breaker.
func (s *Store) Break(ctx context.Context, name string, token uint64) error {
	broken, err := s.change(ctx, "break", &batch.Job{Name: name}, statement.Break, name, int64(token))
	if err != nil {
		return err
	}
	if !broken {
		return driver.ErrNotHeld
	}
	s.waiters.notify(name)
	return nil
}

// Pass implements driver.Passer: one statement writes the new owner over the old one.
// The token that is replaced says what the new one is.
func (s *Store) Pass(ctx context.Context, grant driver.Grant, req driver.Request) (driver.Grant, error) {
	passed, err := s.change(ctx, "pass", &batch.Job{Name: grant.Name, Owner: req.Owner}, statement.Pass,
		grant.Name, grant.Owner.Hex(), int64(grant.Token), req.Owner.Hex(), millis(req.TTL), req.Holder.Encode())
	switch {
	case err != nil:
		return driver.Grant{}, err
	case !passed:
		return driver.Grant{}, driver.ErrNotHeld
	}
	s.attempts.Passed(grant)
	return granted(&req, grant.Token+1), nil
}

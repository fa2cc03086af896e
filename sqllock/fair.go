package sqllock

import (
	"context"
	"errors"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/sqldb"
	"github.com/dlock-go/dlock/sqllock/internal/batch"
	"github.com/dlock-go/dlock/sqllock/internal/places"
	"github.com/dlock-go/dlock/sqllock/internal/statement"
)

// acquireFair is Acquire in the order of arrival: it takes the lock if no other owner is
// ahead, and otherwise keeps or takes a place. Many waiters share a transaction, or
// they would delay renewals. A single waiter needs none: what a crash leaves between two
// statements is a place that lapses.
func (s *Store) acquireFair(ctx context.Context, req driver.Request) (driver.Grant, error) {
	owner := req.Owner.Hex()
	if s.refused.has(req.Name) { // reading first disturbs no writer
		if err := s.readBlocker(ctx, &req); err != nil {
			return driver.Grant{}, s.afterRefusal(ctx, &req, err)
		}
	}
	var token uint64
	var held *driver.HeldError
	queues := req.Queue && s.places.Attempt(owner) != places.Young
	err := s.do(ctx, "acquire", &batch.Job{Name: req.Name, Owner: req.Owner, Atomic: s.dialect.atomic, Run: func(ctx context.Context, run statement.Runner) (err error) {
		token, err = s.try(ctx, run, &req)
		if refusal, ok := errors.AsType[*driver.HeldError](err); ok {
			held, err = refusal, nil
			if queues {
				err = takePlace(ctx, run, &req)
			}
		}
		return err
	}})
	switch {
	case err != nil:
		return driver.Grant{}, err
	case token != 0:
		s.refused.remove(req.Name)
		s.places.Remove(owner)
		return granted(&req, token), nil
	}
	s.refused.add(req.Name)
	if queues {
		s.places.Add(req.Name, owner, req.TTL)
	}
	return driver.Grant{}, held
}

// afterRefusal takes or keeps a place for a caller that was refused, if it queues.
func (s *Store) afterRefusal(ctx context.Context, req *driver.Request, refusal error) error {
	owner := req.Owner.Hex()
	if !errors.Is(refusal, driver.ErrHeld) || !req.Queue {
		return refusal
	}
	switch kept, err := s.keepPlaces(ctx, owner); {
	case err != nil:
		return err
	case kept:
		return refusal
	}
	err := s.do(ctx, "acquire", &batch.Job{Name: req.Name, Owner: req.Owner, Atomic: s.dialect.atomic, Run: func(ctx context.Context, run statement.Runner) error {
		return takePlace(ctx, run, req)
	}})
	if err != nil {
		return err
	}
	s.places.Add(req.Name, owner, req.TTL)
	return refusal
}

// takePlace takes or keeps a place. Places that lapsed are deleted first: a waiter that
// comes back too late begins at the end of the queue.
func takePlace(ctx context.Context, run statement.Runner, req *driver.Request) error {
	if _, err := run.Exec(ctx, statement.Prune, req.Name); err != nil {
		return err
	}
	_, err := run.Exec(ctx, statement.Enqueue, req.Name, req.Owner.Hex(), millis(req.TTL))
	return err
}

// keepPlaces renews the places of all waiters for owner, whose place is due. It
// reports whether owner has a place.
func (s *Store) keepPlaces(ctx context.Context, owner string) (kept bool, err error) {
	for {
		switch s.places.Attempt(owner) {
		case places.Young:
			return true, nil
		case places.Missing:
			return false, nil
		}
		if underway := s.places.Begin(); underway != nil {
			select {
			case <-underway:
				continue
			case <-ctx.Done():
				return false, s.explain(ctx, "acquire", ctx.Err())
			}
		}
		err := s.renewPlaces(ctx)
		s.places.End()
		if err != nil {
			return false, err
		}
	}
}

// renewPlaces writes the places of all waiters that made an attempt. It creates none: an
// owner may have left meanwhile.
func (s *Store) renewPlaces(ctx context.Context) error {
	var all []places.Renewal
	var renewed map[statement.Key]bool
	err := s.do(ctx, "acquire", &batch.Job{Urgent: true, Run: func(ctx context.Context, run statement.Runner) error {
		all, renewed = s.places.Collect(), nil
		rows := make([][3]any, len(all))
		for i, p := range all {
			rows[i] = [3]any{p.Name, p.Owner, millis(p.Left)}
		}
		list := sqldb.JSON(rows)
		result, err := run.Exec(ctx, statement.KeepPlaces, list)
		if err != nil {
			return err
		}
		if n, err := result.RowsAffected(); err != nil || n == int64(len(all)) {
			return err
		}
		renewed, err = run.Keys(ctx, statement.KeptPlaces, list)
		return err
	}})
	if err == nil {
		s.places.NoteRenewed(all, renewed)
	}
	return err
}

package sqllock

import (
	"cmp"
	"context"
	"database/sql"
	"errors"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/sqllock/internal/batch"
	"github.com/dlock-go/dlock/sqllock/internal/places"
	"github.com/dlock-go/dlock/sqllock/internal/row"
	"github.com/dlock-go/dlock/sqllock/internal/statement"
)

// A lock is a row under its name, taken by one statement that updates it if it is free,
// expired or the owner's already. The row outlives the lock, so that its token continues.
// With Version the row must also be as it was read before. The row's token is the last one of
// the grant.

// tokenStep is how many tokens a grant has.
const tokenStep = 1024

// maxRaces limits the attempts that fail although a read right after them finds the lock free.
const maxRaces = 4

// Acquire implements driver.Store with one job, which takes the lock if the request gives way to no
// place in the queue, and otherwise keeps or takes a place. Many waiters share a transaction, or they
// would delay renewals. A single exclusive waiter needs none: what a crash leaves between two
// statements is a place that expires.
func (s *Store) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	// An attempt may keep other writers out even if it is refused. So a name that was
	// refused is read first.
	if s.refused.Has(req.Name) {
		if err := s.readBlocker(ctx, &req); err != nil {
			return driver.Grant{}, s.afterRefusal(ctx, &req, err)
		}
	}
	var token uint64
	var refusal error
	place := req.Owner.Hex()
	young := req.Queue && s.places.Attempt(place) == places.Young
	inTx := req.Mode != (driver.Mode{}) || req.Fair && s.dialect.prefersTx
	take := func(ctx context.Context, run statement.Runner) (err error) {
		refusal = nil
		token, err = s.acquireOn(ctx, run, &req)
		if isRefusal(err) {
			refusal, err = err, nil
			if keepsPlace(&req, refusal) && !young {
				err = takePlace(ctx, run, &req)
			}
		}
		return err
	}
	err := s.runJob(ctx, "acquire", &batch.Job{Name: req.Name, Owner: req.Owner, InTx: inTx, Run: take})
	switch {
	case err != nil:
		if req.Queue {
			s.places.Add(req.Name, place, driver.PlaceTTL(req.TTL), err)
		}
		return driver.Grant{}, err
	case refusal == nil:
		s.refused.Put(req.Name, false)
		s.places.Remove(place)
		return granted(&req, token), nil
	}
	s.refused.Put(req.Name, true)
	if keepsPlace(&req, refusal) && !young {
		s.places.Add(req.Name, place, driver.PlaceTTL(req.TTL), nil)
	}
	return driver.Grant{}, refusal
}

// runAcquire runs the statement of an attempt, which is refused if the token is zero.
func (s *Store) runAcquire(ctx context.Context, run statement.Runner, req *driver.Request, version int64) (token uint64, err error) {
	id := statement.Acquire
	if req.Fair {
		id = statement.AcquireFair
	}
	return run.Acquire(ctx, id, req.Name, req.Owner.Hex(), millis(req.TTL), req.Holder.Encode(), version, int64(tokenStep))
}

// readVersion returns a row's version, zero if the row does not exist, or why req is refused.
func readVersion(ctx context.Context, run statement.Runner, req *driver.Request) (version int64, err error) {
	lock, before, err := readRow(ctx, run, statement.ReadHolders, req)
	if err != nil || lock == nil {
		return 0, err
	}
	if lock.Of(req.Owner.Hex()) == nil {
		err = refusal(req, lock, before.fair)
	}
	return lock.Row().Token, err
}

// readBlocker returns why req would be refused, or nil, as a call of its own.
func (s *Store) readBlocker(ctx context.Context, req *driver.Request) error {
	return s.read(ctx, "acquire", func() error { return blocker(ctx, s.run(), req) })
}

// blocker returns why req would be refused: another owner has the lock or comes before it in the
// queue. It returns nil if an attempt may succeed.
func blocker(ctx context.Context, run statement.Runner, req *driver.Request) error {
	if req.Mode != (driver.Mode{}) {
		lock, before, err := readRow(ctx, run, statement.ReadRow, req)
		if err != nil || lock == nil {
			return err
		}
		return shareRefusal(req, lock, before)
	}
	var queued bool
	lock, err := row.Read(func(dest ...any) error {
		return run.One(ctx, statement.Blocker, []any{req.Name, req.Owner.Hex()}, dest...)
	}, nil, &queued)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return nil
	case err != nil:
		return err
	case lock.Row().Token != 0:
		return refusal(req, lock, queued)
	case req.Fair: // the head of the queue is in place of the holder
		return &driver.HeldError{Name: req.Name, Remaining: remaining(lock.Remaining(&lock.Shares[0]))}
	}
	return nil
}

// granted returns the grant of a row with that token.
func granted(req *driver.Request, token uint64) driver.Grant {
	grant := driver.Grant{Name: req.Name, Owner: req.Owner, Token: firstToken(int64(token)), TTL: req.TTL}
	if req.Mode != (driver.Mode{}) {
		grant.Handle = listed{}
	}
	return grant
}

// firstToken returns the token of a grant whose row has the last one.
func firstToken(last int64) uint64 { return uint64(max(1, last-tokenStep+1)) }

// lastToken returns the token of the row of a grant, zero if the grant has no token.
func lastToken(grant *driver.Grant) int64 {
	if grant.Token == 0 {
		return 0
	}
	return int64(grant.Token + tokenStep - 1)
}

// acquireOn makes attempts over one connection until one is granted. If other owners block them,
// the error is a HeldError or a ModeError.
func (s *Store) acquireOn(ctx context.Context, run statement.Runner, req *driver.Request) (token uint64, err error) {
	if req.Mode == (driver.Mode{}) {
		token, err = s.acquireExclusive(ctx, run, req)
	} else {
		token, err = acquireShare(ctx, run, req)
	}
	if err == nil && (req.Fair || req.Queue && s.places.Has(req.Owner.Hex())) {
		_, err = run.Exec(ctx, statement.DeletePlace, req.Name, req.Owner.Hex())
	}
	return token, err
}

func insertFree(ctx context.Context, run statement.Runner, req *driver.Request) error {
	inserted, err := run.Changed(ctx, statement.InsertFree, req.Name)
	if err == nil && !inserted { // there is one, or the floor is missing
		_, err = run.ReadFloor(ctx)
	}
	return err
}

func (s *Store) acquireExclusive(ctx context.Context, run statement.Runner, req *driver.Request) (token uint64, err error) {
	for range maxRaces {
		var version int64
		if s.scheme == Version {
			if version, err = readVersion(ctx, run, req); err != nil {
				return 0, err
			}
		}
		token, err = s.runAcquire(ctx, run, req, version)
		if err != nil && s.dialect.oneMachine && s.isRetryable(err) {
			// In a crowd of processes a refusal is not worth waiting for the only writer.
			err = cmp.Or(blocker(ctx, run, req), err)
		}
		if err != nil || token != 0 {
			return token, err
		}
		if err := blocker(ctx, run, req); err != nil {
			return 0, err
		}
		if !s.dialect.acquireInserts {
			if err := insertFree(ctx, run, req); err != nil {
				return 0, err
			}
		}
	}
	return 0, &driver.HeldError{Name: req.Name}
}

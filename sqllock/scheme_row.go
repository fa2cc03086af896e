package sqllock

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"

	"github.com/dlock-go/dlock/driver"
)

// The row scheme: a lock is a row under its name, taken by one statement that
// updates it if it is free, expired or the owner's already. The row outlives
// the lock, so that its token goes on from where it was. The version scheme
// adds that the row must be as it was read before.

// maxAttempts is how often a lock is tried that was refused, or had another
// version, and that nobody has when its holder is looked up.
const maxAttempts = 4

// Acquire implements driver.Store.
func (s *Store) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	if req.Fair {
		return s.acquireFair(ctx, req)
	}
	owner := req.Owner.Hex()
	// An attempt may keep other writers out even if it is refused. Where the
	// last one was, look first: those who try again and again disturb nobody.
	if s.refused.has(req.Name) && s.scheme == Row {
		if err := s.blockedBy(ctx, &req, owner); err != nil {
			return driver.Grant{}, err
		}
	}
	for range maxAttempts {
		token, err := s.attempt(ctx, &req, owner)
		if err != nil {
			return driver.Grant{}, err
		}
		if token != 0 {
			s.refused.remove(req.Name)
			return granted(&req, token), nil
		}
		s.refused.add(req.Name)
		if err := s.blockedBy(ctx, &req, owner); err != nil {
			return driver.Grant{}, err
		}
		// Either it was released in between, or there is no row yet.
		if err := s.ensureRow(ctx, req.Name); err != nil {
			return driver.Grant{}, err
		}
	}
	return driver.Grant{}, &driver.HeldError{Name: req.Name}
}

// attempt makes one attempt, which is refused if the token is zero. With
// versions, somebody else's lock is refused without writing.
func (s *Store) attempt(ctx context.Context, req *driver.Request, owner string) (uint64, error) {
	var version int64
	if s.scheme == Version {
		var held *driver.HeldError
		err := s.read(ctx, "acquire", func() (err error) {
			version, held, err = readVersion(ctx, s.each(), req.Name, owner)
			return err
		})
		if err != nil || held != nil {
			return 0, orHeld(err, held)
		}
	}
	var token uint64
	err := s.together(ctx, "acquire", &job{name: req.Name, owner: req.Owner, run: func(ctx context.Context, run runner) (err error) {
		token, err = s.dialect.take(ctx, run, acquire, req.Name, owner, millis(req.TTL), req.Holder.Encode(), version)
		return err
	}})
	if err != nil {
		return 0, err // token may be written yet
	}
	return token, nil
}

func orHeld(err error, held *driver.HeldError) error {
	if err != nil {
		return err
	}
	return held
}

// readVersion reads a row's version, zero if there is none, or who has the lock.
func readVersion(ctx context.Context, run runner, name, owner string) (version int64, held *driver.HeldError, err error) {
	var taken bool
	var holder string
	var ms int64
	err = run.one(ctx, current, []any{name, owner}, &version, &taken, &holder, &ms)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return 0, nil, nil
	case err != nil || !taken:
		return version, nil, err
	}
	return 0, &driver.HeldError{Name: name, Token: uint64(version), Holder: driver.DecodeHolder(holder), Remaining: remaining(ms)}, nil
}

// blockedBy returns a HeldError if another owner has the lock or, for a fair request,
// heads the queue, and nil if an attempt is worth it.
func (s *Store) blockedBy(ctx context.Context, req *driver.Request, owner string) error {
	var held *driver.HeldError
	err := s.read(ctx, "acquire", func() (err error) {
		held, err = refusal(ctx, s.each(), req.Name, owner)
		return err
	})
	if err == nil && (held.Token != 0 || req.Fair && held.Remaining != 0) {
		return held
	}
	return err
}

// ensureRow makes sure that there is a row to update.
func (s *Store) ensureRow(ctx context.Context, name string) error {
	if s.dialect.inserts {
		return nil
	}
	_, err := s.change(ctx, "acquire", insertFree, name)
	return err
}

// takeReturning is for databases that answer an update with its rows.
func takeReturning(ctx context.Context, run runner, s statement, args ...any) (token uint64, err error) {
	if err = run.one(ctx, s, args, &token); errors.Is(err, sql.ErrNoRows) {
		return 0, nil
	}
	return token, err
}

// refusal reads who has name, or whose turn it is if the token is zero.
func refusal(ctx context.Context, run runner, name, owner string) (*driver.HeldError, error) {
	held := &driver.HeldError{Name: name}
	var holder string
	var ms int64
	err := run.one(ctx, blocker, []any{name, owner}, &held.Token, &holder, &ms)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return nil, err
	}
	held.Holder, held.Remaining = driver.DecodeHolder(holder), remaining(ms)
	return held, nil
}

func granted(req *driver.Request, token uint64) driver.Grant {
	return driver.Grant{Name: req.Name, Owner: req.Owner, Token: token, TTL: req.TTL}
}

// Release implements driver.Store. It waits for attempts of the owner that share a
// transaction with others and go on.
func (s *Store) Release(ctx context.Context, grant driver.Grant) error {
	if ctx.Err() != nil {
		return s.fail(ctx, "release", ctx.Err())
	}
	settled, err := s.attempts.Settle(ctx, grant)
	if err != nil {
		return err
	}
	defer settled()
	owner := grant.Owner.Hex()
	released, err := s.change(ctx, "release", release, grant.Name, owner, int64(grant.Token))
	if err != nil {
		return err
	}
	if released {
		s.watchers.wake(grant.Name)
		return nil
	}
	s.placed.remove(owner)
	// Only an owner without the lock can have a place in the queue.
	left, err := s.change(ctx, "release", giveUp, grant.Name, owner)
	if err != nil {
		return err
	}
	if left {
		s.watchers.wake(grant.Name)
	}
	return driver.ErrNotHeld
}

// Break implements driver.Breaker.
func (s *Store) Break(ctx context.Context, name string, token uint64) error {
	broken, err := s.change(ctx, "break", breakLock, name, int64(token))
	if err != nil {
		return err
	}
	if !broken {
		return driver.ErrNotHeld
	}
	s.watchers.wake(name)
	return nil
}

// change runs a statement about a name that writes, and says whether it changed
// anything.
func (s *Store) change(ctx context.Context, op string, stmt statement, name string, args ...any) (bool, error) {
	return s.changeJob(ctx, op, &job{name: name}, stmt, append([]any{name}, args...)...)
}

// changeAny is change for a statement about no name in particular.
func (s *Store) changeAny(ctx context.Context, op string, stmt statement, args ...any) (bool, error) {
	return s.changeJob(ctx, op, &job{}, stmt, args...)
}

func (s *Store) changeJob(ctx context.Context, op string, j *job, stmt statement, args ...any) (bool, error) {
	var changed bool
	j.run = func(ctx context.Context, run runner) (err error) {
		changed, err = run.changed(ctx, stmt, args...)
		return err
	}
	if err := s.together(ctx, op, j); err != nil {
		return false, err // changed may be written yet
	}
	return changed, nil
}

// encode returns v as a JSON list, the form in which statements take many rows.
func encode(v any) string {
	b, _ := json.Marshal(v) // strings and numbers: cannot fail
	return string(b)
}

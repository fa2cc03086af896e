package sqllock

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strings"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/sqllock/internal/batch"
	"github.com/dlock-go/dlock/sqllock/internal/statement"
)

// A lock is a row under its name, taken by one statement that updates it if it is free,
// expired or the owner's already. The row outlives the lock, so that its token continues.
// With Version the row must also be as it was read before.

// maxAttempts is how often a lock is tried that was refused, or had another version, and
// that is free when its holder is looked up.
const maxAttempts = 4

// Acquire implements driver.Store.
func (s *Store) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	if req.Fair {
		return s.acquireFair(ctx, req)
	}
	owner := req.Owner.Hex()
	// An attempt may keep other writers out even if it is refused. So a name that was
	// refused is read first.
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
		// Either the lock was released in between, or it has no row yet.
		if !s.dialect.inserts {
			if _, err := s.change(ctx, "acquire", &batch.Job{Name: req.Name}, statement.InsertFree, req.Name); err != nil {
				return driver.Grant{}, err
			}
		}
	}
	return driver.Grant{}, &driver.HeldError{Name: req.Name}
}

// attempt makes one attempt, which is refused if the token is zero. With
// versions, the lock of another owner is refused without writing.
func (s *Store) attempt(ctx context.Context, req *driver.Request, owner string) (uint64, error) {
	var version int64
	if s.scheme == Version {
		var held *driver.HeldError
		err := s.read(ctx, "acquire", func() (err error) {
			version, held, err = readVersion(ctx, s.run(), req.Name, owner)
			return err
		})
		switch {
		case err != nil:
			return 0, err
		case held != nil:
			return 0, held
		}
	}
	var token uint64
	err := s.do(ctx, "acquire", &batch.Job{Name: req.Name, Owner: req.Owner, Run: func(ctx context.Context, run statement.Runner) (err error) {
		token, err = s.dialect.take(ctx, run, statement.Acquire, req.Name, owner, millis(req.TTL), req.Holder.Encode(), version)
		return err
	}})
	if err != nil {
		return 0, err // the job may still set token
	}
	return token, nil
}

// readVersion reads a row's version, zero if there is none, or the holder of the lock.
func readVersion(ctx context.Context, run statement.Runner, name, owner string) (version int64, held *driver.HeldError, err error) {
	var taken bool
	var holder string
	var ms int64
	err = run.One(ctx, statement.Current, []any{name, owner}, &version, &taken, &holder, &ms)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return 0, nil, nil
	case err != nil || !taken:
		return version, nil, err
	}
	return 0, &driver.HeldError{Name: name, Token: uint64(version), Holder: driver.DecodeHolder(holder), Remaining: remaining(ms)}, nil
}

// blockedBy returns a HeldError if another owner has the lock or, for a fair request,
// heads the queue, and nil if an attempt may succeed.
func (s *Store) blockedBy(ctx context.Context, req *driver.Request, owner string) error {
	var held *driver.HeldError
	err := s.read(ctx, "acquire", func() (err error) {
		held, err = refusal(ctx, s.run(), req.Name, owner)
		return err
	})
	if err == nil && (held.Token != 0 || req.Fair && held.Remaining != 0) {
		return held
	}
	return err
}

// refusal reads the holder of name. If the token is zero, it is the head of the queue.
func refusal(ctx context.Context, run statement.Runner, name, owner string) (*driver.HeldError, error) {
	held := &driver.HeldError{Name: name}
	var holder string
	var ms int64
	err := run.One(ctx, statement.Blocker, []any{name, owner}, &held.Token, &holder, &ms)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return nil, err
	}
	held.Holder, held.Remaining = driver.DecodeHolder(holder), remaining(ms)
	return held, nil
}

func granted(req *driver.Request, token uint64) driver.Grant {
	return driver.Grant{Name: req.Name, Owner: req.Owner, Token: token, TTL: req.TTL}
}

// AcquireAll implements driver.BatchAcquirer with one transaction.
func (s *Store) AcquireAll(ctx context.Context, reqs []driver.Request) ([]driver.Grant, error) {
	order := make([]int, len(reqs))
	for i := range order {
		order[i] = i
	}
	// In the order in which all writers lock rows.
	slices.SortFunc(order, func(a, b int) int { return strings.Compare(reqs[a].Name, reqs[b].Name) })
	grants := make([]driver.Grant, len(reqs))
	var failed error
	err := s.write(ctx, "acquire", func() error {
		failed = s.inTx(ctx, func(run statement.Runner) error {
			for _, i := range order {
				token, held, err := s.try(ctx, run, &reqs[i])
				if err != nil {
					return err
				}
				if token == 0 {
					return held
				}
				grants[i] = granted(&reqs[i], token)
			}
			return nil
		})
		return failed
	})
	if _, unsure := errors.AsType[*unsureError](failed); unsure && s.mayHappen(failed) {
		for i := range reqs {
			s.attempts.Unanswered(reqs[i].Name, reqs[i].Owner)
		}
	}
	if err != nil {
		return nil, err
	}
	return grants, nil
}

// try makes attempts over one connection until one is granted or another owner blocks
// them. If the token is zero, held says why.
func (s *Store) try(ctx context.Context, run statement.Runner, req *driver.Request) (token uint64, held *driver.HeldError, err error) {
	owner := req.Owner.Hex()
	for range maxAttempts {
		if token, held, err = s.tryOnce(ctx, run, req, owner); err != nil || held != nil {
			return 0, held, err
		}
		if token != 0 {
			break
		}
		if held, err = refusal(ctx, run, req.Name, owner); err != nil || held.Token != 0 || held.Remaining != 0 {
			return 0, held, err
		}
		if s.dialect.inserts {
			continue
		}
		if _, err = run.Exec(ctx, statement.InsertFree, req.Name); err != nil {
			return 0, nil, err
		}
	}
	if token == 0 {
		return 0, &driver.HeldError{Name: req.Name}, nil
	}
	if req.Fair {
		_, err = run.Exec(ctx, statement.Leave, req.Name, owner)
	}
	return token, nil, err
}

// tryOnce makes one attempt. Both results are zero if it was refused for a
// reason that is not known yet.
func (s *Store) tryOnce(ctx context.Context, run statement.Runner, req *driver.Request, owner string) (token uint64, held *driver.HeldError, err error) {
	id := statement.Acquire
	if req.Fair {
		id = statement.AcquireFair
	}
	var version int64
	if s.scheme == Version {
		if version, held, err = readVersion(ctx, run, req.Name, owner); err != nil || held != nil {
			return 0, held, err
		}
	}
	token, err = s.dialect.take(ctx, run, id, req.Name, owner, millis(req.TTL), req.Holder.Encode(), version)
	return token, nil, err
}

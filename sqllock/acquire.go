package sqllock

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"slices"
	"strings"
	"sync"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/sqllock/internal/batch"
	"github.com/dlock-go/dlock/sqllock/internal/statement"
)

// A lock is a row under its name, taken by one statement that updates it if it is free,
// expired or the owner's already. The row outlives the lock, so that its token continues.
// With Version the row must also be as it was read before. The row's token is the last one of
// the grant's span.

// maxRaces is how often an attempt is made again that was refused, or found another version,
// although the lock is free when its holder is read.
const maxRaces = 4

// Acquire implements driver.Store.
func (s *Store) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	if req.Fair {
		return s.acquireFair(ctx, req)
	}
	// An attempt may keep other writers out even if it is refused. So a name that was
	// refused is read first.
	if s.refused.has(req.Name) && s.scheme == Row {
		if err := s.readBlocker(ctx, &req); err != nil {
			return driver.Grant{}, err
		}
	}
	for range maxRaces {
		token, err := s.attempt(ctx, &req)
		if err != nil {
			return driver.Grant{}, err
		}
		if token != 0 {
			s.refused.remove(req.Name)
			return granted(&req, token), nil
		}
		s.refused.add(req.Name)
		if err := s.readBlocker(ctx, &req); err != nil {
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

// attempt makes one attempt, which is refused if the token is zero. With versions, the lock
// of another owner is refused without writing.
func (s *Store) attempt(ctx context.Context, req *driver.Request) (uint64, error) {
	var version int64
	if s.scheme == Version {
		err := s.read(ctx, "acquire", func() (err error) {
			version, err = readVersion(ctx, s.run(), req)
			return err
		})
		if err != nil {
			return 0, err
		}
	}
	var token uint64
	err := s.do(ctx, "acquire", &batch.Job{Name: req.Name, Owner: req.Owner, Run: func(ctx context.Context, run statement.Runner) (err error) {
		token, err = s.take(ctx, run, req, version)
		if err != nil && s.dialect.oneMachine && s.isRetryable(err) {
			// In a crowd of processes a refusal is not worth waiting for the only writer.
			err = cmp.Or(blocker(ctx, run, req), err)
		}
		return err
	}})
	switch {
	case errors.Is(err, driver.ErrHeld):
		s.refused.add(req.Name)
		return 0, err
	case err != nil:
		return 0, err // the job may still set token
	}
	return token, nil
}

// take runs the statement of an attempt, which is refused if the token is zero.
func (s *Store) take(ctx context.Context, run statement.Runner, req *driver.Request, version int64) (token uint64, err error) {
	id := statement.Acquire
	if req.Fair {
		id = statement.AcquireFair
	}
	return s.dialect.take(ctx, run, id, req.Name, req.Owner.Hex(), millis(req.TTL), req.Holder.Encode(), version, int64(max(1, req.Span)))
}

// readVersion returns a row's version, zero if the row does not exist, or a HeldError.
func readVersion(ctx context.Context, run statement.Runner, req *driver.Request) (version int64, err error) {
	var held bool
	var holder string
	var ms int64
	err = run.One(ctx, statement.Current, []any{req.Name, req.Owner.Hex()}, &version, &held, &holder, &ms)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return 0, nil
	case err == nil && held:
		err = &driver.HeldError{Name: req.Name, Token: uint64(version), Holder: driver.DecodeHolder(holder), Remaining: remaining(ms)}
	}
	return version, err
}

// readBlocker is blocker as a call of its own.
func (s *Store) readBlocker(ctx context.Context, req *driver.Request) error {
	return s.read(ctx, "acquire", func() error { return blocker(ctx, s.run(), req) })
}

// blocker returns a HeldError if another owner has the lock or, for a fair request, heads the
// queue, and nil if an attempt may succeed.
func blocker(ctx context.Context, run statement.Runner, req *driver.Request) error {
	held := &driver.HeldError{Name: req.Name}
	var holder string
	var ms int64
	err := run.One(ctx, statement.Blocker, []any{req.Name, req.Owner.Hex()}, &held.Token, &holder, &ms)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return err
	}
	held.Holder, held.Remaining = driver.DecodeHolder(holder), remaining(ms)
	if held.Token != 0 || req.Fair && held.Remaining != 0 {
		return held
	}
	return nil
}

// granted returns the grant of a row with that token.
func granted(req *driver.Request, token uint64) driver.Grant {
	span := max(1, req.Span)
	return driver.Grant{Name: req.Name, Owner: req.Owner, Token: token - span + 1, Span: span, TTL: req.TTL}
}

// lastToken returns the token of the row of a grant, zero if the grant has no token.
func lastToken(grant *driver.Grant) int64 {
	if grant.Token == 0 {
		return 0
	}
	return int64(grant.Token + max(1, grant.Span) - 1)
}

// AcquireAll implements driver.BatchAcquirer with one transaction.
func (s *Store) AcquireAll(ctx context.Context, reqs []driver.Request) ([]driver.Grant, error) {
	order := indexes(len(reqs)) // in which all writers lock rows
	slices.SortFunc(order, func(a, b int) int { return strings.Compare(reqs[a].Name, reqs[b].Name) })
	grants := make([]driver.Grant, len(reqs))
	var failed error
	err := s.inSlot(ctx, s.writing, "acquire", func() error {
		failed = s.inTx(ctx, func(run statement.Runner) error {
			for _, i := range order {
				token, err := s.try(ctx, run, &reqs[i])
				if err != nil {
					return err
				}
				grants[i] = granted(&reqs[i], token)
			}
			return nil
		})
		return failed
	})
	if isUnsure(failed) && s.mayHappen(failed) {
		for i := range reqs {
			s.attempts.Unanswered(reqs[i].Name, reqs[i].Owner)
		}
	}
	if err != nil {
		return nil, err
	}
	return grants, nil
}

// try makes attempts over one connection until one is granted. If another owner blocks them,
// the error is a HeldError.
func (s *Store) try(ctx context.Context, run statement.Runner, req *driver.Request) (token uint64, err error) {
	for range maxRaces {
		var version int64
		if s.scheme == Version {
			if version, err = readVersion(ctx, run, req); err != nil {
				return 0, err
			}
		}
		if token, err = s.take(ctx, run, req, version); err != nil {
			return 0, err
		}
		if token != 0 && req.Fair {
			_, err = run.Exec(ctx, statement.Leave, req.Name, req.Owner.Hex())
		}
		if token != 0 {
			return token, err
		}
		if err := blocker(ctx, run, req); err != nil {
			return 0, err
		}
		if s.dialect.inserts {
			continue
		}
		if _, err := run.Exec(ctx, statement.InsertFree, req.Name); err != nil {
			return 0, err
		}
	}
	return 0, &driver.HeldError{Name: req.Name}
}

// maxNames bounds a set of names. It only holds hints, which may be forgotten.
const maxNames = 10_000

// names is a set of lock names that becomes empty when it is full. The zero value is empty.
type names struct {
	mu  sync.Mutex
	set map[string]struct{}
}

func (n *names) has(name string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	_, ok := n.set[name]
	return ok
}

func (n *names) add(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.set == nil || len(n.set) >= maxNames {
		n.set = make(map[string]struct{})
	}
	n.set[name] = struct{}{}
}

func (n *names) remove(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.set, name)
}

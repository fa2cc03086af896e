package sqllock

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strings"

	"github.com/dlock-go/dlock/driver"
)

// acquireFair is Acquire in the order of arrival: it takes the lock if nobody is
// ahead, and otherwise keeps or takes a place. Many waiters share a transaction, or
// they would keep renewals waiting. None is needed for one alone: what a crash
// leaves between two statements is a place that lapses.
func (s *Store) acquireFair(ctx context.Context, req driver.Request) (driver.Grant, error) {
	owner := req.Owner.Hex()
	if s.refused.has(req.Name) { // to look first disturbs nobody
		if err := s.blockedBy(ctx, &req, owner); err != nil {
			return driver.Grant{}, s.afterRefusal(ctx, &req, err)
		}
	}
	var token uint64
	var held *driver.HeldError
	queues := req.Queue && s.placed.come(owner) != placeYoung
	err := s.together(ctx, "acquire", &job{name: req.Name, owner: req.Owner, atomic: s.dialect.atomic, run: func(ctx context.Context, run runner) (err error) {
		if token, held, err = s.try(ctx, run, &req); err != nil || token != 0 || !queues {
			return err
		}
		return takePlace(ctx, run, &req)
	}})
	switch {
	case err != nil:
		return driver.Grant{}, err
	case token != 0:
		s.refused.remove(req.Name)
		s.placed.remove(owner)
		return granted(&req, token), nil
	}
	s.refused.add(req.Name)
	if queues {
		s.placed.add(req.Name, owner, req.TTL)
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
	err := s.together(ctx, "acquire", &job{name: req.Name, owner: req.Owner, atomic: s.dialect.atomic, run: func(ctx context.Context, run runner) error {
		return takePlace(ctx, run, req)
	}})
	if err != nil {
		return err
	}
	s.placed.add(req.Name, owner, req.TTL)
	return refusal
}

// takePlace takes or keeps a place. Those that lapsed are dropped first: who comes
// back too late begins anew.
func takePlace(ctx context.Context, run runner, req *driver.Request) error {
	if _, err := run.exec(ctx, prune, req.Name); err != nil {
		return err
	}
	_, err := run.exec(ctx, enqueue, req.Name, req.Owner.Hex(), millis(req.TTL))
	return err
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
		failed = s.inTx(ctx, func(run runner) error {
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
			s.attempts.Lost(reqs[i].Name, reqs[i].Owner)
		}
	}
	if err != nil {
		return nil, err
	}
	return grants, nil
}

// try makes attempts over one connection until it is granted or somebody is in
// the way. The token is zero where it was refused, and then the error to return
// says why.
func (s *Store) try(ctx context.Context, run runner, req *driver.Request) (token uint64, held *driver.HeldError, err error) {
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
		if _, err = run.exec(ctx, insertFree, req.Name); err != nil {
			return 0, nil, err
		}
	}
	if token == 0 {
		return 0, &driver.HeldError{Name: req.Name}, nil
	}
	if req.Fair {
		_, err = run.exec(ctx, leave, req.Name, owner)
	}
	return token, nil, err
}

// tryOnce makes one attempt. Both results are zero if it was refused for a
// reason that is not known yet.
func (s *Store) tryOnce(ctx context.Context, run runner, req *driver.Request, owner string) (token uint64, held *driver.HeldError, err error) {
	stmt := acquire
	if req.Fair {
		stmt = acquireFair
	}
	var version int64
	if s.scheme == Version {
		if version, held, err = readVersion(ctx, run, req.Name, owner); err != nil || held != nil {
			return 0, held, err
		}
	}
	token, err = s.dialect.take(ctx, run, stmt, req.Name, owner, millis(req.TTL), req.Holder.Encode(), version)
	return token, nil, err
}

// each runs statements each on its own.
func (s *Store) each() runner { return runner{queries: &s.queries, db: s.db} }

func (s *Store) within(tx *sql.Tx) runner { return runner{queries: &s.queries, db: s.db, tx: tx} }

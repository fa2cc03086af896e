package sqllock

import (
	"context"
	"database/sql"

	"github.com/dlock-go/dlock/driver"
)

// acquireFair is Acquire in the order of arrival: it drops the places that
// lapsed, takes the lock if nobody is ahead, and otherwise keeps or takes a place.
// Many waiters share a transaction, or they would keep renewals waiting.
func (s *Store) acquireFair(ctx context.Context, req driver.Request) (driver.Grant, error) {
	var token uint64
	var held *driver.HeldError
	err := s.together(ctx, "acquire", &job{atomic: true, run: func(ctx context.Context, use prepared) (err error) {
		if _, err = use(prune).ExecContext(ctx, req.Name); err != nil {
			return err
		}
		if token, held, err = s.try(ctx, use, &req); err != nil || token != 0 || !req.Queue {
			return err
		}
		_, err = use(enqueue).ExecContext(ctx, req.Name, req.Owner.Hex(), millis(req.TTL))
		return err
	}})
	switch {
	case err != nil:
		return driver.Grant{}, err
	case token == 0:
		return driver.Grant{}, held
	}
	return granted(&req, token), nil
}

// AcquireAll implements driver.BatchAcquirer with one transaction.
func (s *Store) AcquireAll(ctx context.Context, reqs []driver.Request) ([]driver.Grant, error) {
	grants := make([]driver.Grant, len(reqs))
	err := s.write(ctx, "acquire", func() error {
		return s.inTx(ctx, func(tx *sql.Tx) error {
			for i := range reqs {
				token, held, err := s.try(ctx, s.preparedIn(ctx, tx), &reqs[i])
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
	})
	if err != nil {
		return nil, err
	}
	return grants, nil
}

// try makes one attempt, in a transaction. The token is zero where it was refused, and then
// the error to return says why.
func (s *Store) try(ctx context.Context, use prepared, req *driver.Request) (token uint64, held *driver.HeldError, err error) {
	stmt := acquire
	if req.Fair {
		stmt = acquireFair
	}
	owner := req.Owner.Hex()
	token, err = attempt(use(stmt).QueryRowContext(ctx, req.Name, owner, millis(req.TTL), req.Holder.Encode()))
	switch {
	case err != nil:
		return 0, nil, err
	case token == 0:
		held, err = refusal(use(blocker).QueryRowContext(ctx, req.Name, owner), req.Name)
		return 0, held, err
	case req.Fair:
		_, err = use(leave).ExecContext(ctx, req.Name, owner)
	}
	return token, nil, err
}

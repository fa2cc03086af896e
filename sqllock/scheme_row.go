package sqllock

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"

	"github.com/dlock-go/dlock/driver"
)

// The row scheme: a lock is a row under its name, taken by one statement that
// inserts it or updates it if it is free, expired or the owner's already. The
// row outlives the lock, so that its token goes on from where it was.

// Acquire implements driver.Store.
func (s *Store) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	if req.Fair {
		return s.acquireFair(ctx, req)
	}
	var token uint64
	// A lock that was refused and is free when its holder is looked up was
	// released in between: try again, but not for ever.
	for range 3 {
		err := s.write(ctx, "acquire", func() (err error) {
			token, err = attempt(s.stmts[acquire].QueryRowContext(ctx, req.Name, req.Owner.Hex(), millis(req.TTL), req.Holder.Encode()))
			return err
		})
		if err != nil {
			return driver.Grant{}, err
		}
		if token != 0 {
			return granted(&req, token), nil
		}
		var held *driver.HeldError
		err = s.retry(ctx, "acquire", func() (err error) {
			held, err = refusal(s.stmts[blocker].QueryRowContext(ctx, req.Name), req.Name)
			return err
		})
		if err != nil {
			return driver.Grant{}, err
		}
		if held.Token != 0 {
			return driver.Grant{}, held
		}
	}
	return driver.Grant{}, &driver.HeldError{Name: req.Name}
}

// attempt reads the token of an attempt, zero if it was refused.
func attempt(row *sql.Row) (token uint64, err error) {
	if err = row.Scan(&token); errors.Is(err, sql.ErrNoRows) {
		return 0, nil
	}
	return token, err
}

// refusal reads who has name, or whose turn it is if the token is zero.
func refusal(row *sql.Row, name string) (*driver.HeldError, error) {
	held := &driver.HeldError{Name: name}
	var holder string
	var ms int64
	err := row.Scan(&held.Token, &holder, &ms)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return nil, err
	}
	held.Holder, held.Remaining = driver.DecodeHolder(holder), remaining(ms)
	return held, nil
}

func granted(req *driver.Request, token uint64) driver.Grant {
	return driver.Grant{Name: req.Name, Owner: req.Owner, Token: token, TTL: req.TTL}
}

// renewChunk bounds how long one renewal keeps other writers waiting.
const renewChunk = 1000

// Renew implements driver.Store. Each thousand grants are one statement.
func (s *Store) Renew(ctx context.Context, grants []driver.Grant) []error {
	var errs []error
	for start := 0; start < len(grants); start += renewChunk {
		chunk := grants[start:min(start+renewChunk, len(grants))]
		renewed, err := s.renewChunk(ctx, chunk)
		if err == nil && len(renewed) == len(chunk) {
			continue
		}
		if errs == nil {
			errs = make([]error, len(grants))
		}
		for i, grant := range chunk {
			switch {
			case err != nil:
				errs[start+i] = err
			case !renewed[rowKey{grant.Name, grant.Owner.Hex()}]:
				errs[start+i] = driver.ErrNotHeld
			}
		}
	}
	return errs
}

// rowKey tells rows apart in an answer: an owner is of one acquisition only.
type rowKey struct{ name, owner string }

func (s *Store) renewChunk(ctx context.Context, grants []driver.Grant) (map[rowKey]bool, error) {
	rows := make([][4]any, len(grants))
	for i, g := range grants {
		rows[i] = [4]any{g.Name, g.Owner.Hex(), g.Token, millis(g.TTL)}
	}
	var renewed map[rowKey]bool
	err := s.write(ctx, "renew", func() error {
		renewed = make(map[rowKey]bool, len(grants))
		return s.each(ctx, renew, []any{encode(rows)}, func(scan func(...any) error) error {
			var key rowKey
			err := scan(&key.name, &key.owner)
			renewed[key] = true
			return err
		})
	})
	return renewed, err
}

// Release implements driver.Store.
func (s *Store) Release(ctx context.Context, grant driver.Grant) error {
	owner := grant.Owner.Hex()
	released, err := s.change(ctx, "release", release, grant.Name, owner, int64(grant.Token))
	if err != nil {
		return err
	}
	if released {
		s.watchers.wake(grant.Name)
		return nil
	}
	// Only an owner without the lock can have a place in the queue.
	left, err := s.change(ctx, "release", leave, grant.Name, owner)
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

// change runs a statement that writes and says whether it changed anything.
func (s *Store) change(ctx context.Context, op string, stmt statement, args ...any) (changed bool, err error) {
	err = s.write(ctx, op, func() error {
		result, err := s.stmts[stmt].ExecContext(ctx, args...)
		if err != nil {
			return err
		}
		n, err := result.RowsAffected()
		changed = n > 0
		return err
	})
	return changed, err
}

// each runs a statement and calls fn for each row of the answer.
func (s *Store) each(ctx context.Context, stmt statement, args []any, fn func(scan func(...any) error) error) error {
	rows, err := s.stmts[stmt].QueryContext(ctx, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := fn(rows.Scan); err != nil {
			return err
		}
	}
	if err := rows.Err(); err != nil {
		return err
	}
	return rows.Close() // what a statement writes is committed here
}

// encode returns v as a JSON list, the form in which statements take many rows.
func encode(v any) string {
	b, _ := json.Marshal(v) // strings and numbers: cannot fail
	return string(b)
}

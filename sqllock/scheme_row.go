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
	owner := req.Owner.Hex()
	// An attempt keeps other writers out even if it is refused. Where the last
	// one was, look first: those who try again and again then disturb nobody.
	if s.refused.has(req.Name) {
		if err := s.blockedBy(ctx, req.Name, owner); err != nil {
			return driver.Grant{}, err
		}
	}
	// A lock that was refused and is free when its holder is looked up was
	// released in between: try again, but not for ever.
	for range 3 {
		var token uint64
		err := s.writeTogether(ctx, "acquire", func(ctx context.Context, use prepared) (err error) {
			token, err = attempt(use(acquire).QueryRowContext(ctx, req.Name, owner, millis(req.TTL), req.Holder.Encode()))
			return err
		})
		if err != nil {
			return driver.Grant{}, err
		}
		if token != 0 {
			s.refused.remove(req.Name)
			return granted(&req, token), nil
		}
		s.refused.add(req.Name)
		if err := s.blockedBy(ctx, req.Name, owner); err != nil {
			return driver.Grant{}, err
		}
	}
	return driver.Grant{}, &driver.HeldError{Name: req.Name}
}

// blockedBy returns a HeldError if another owner has name, nil if nobody has.
func (s *Store) blockedBy(ctx context.Context, name, owner string) error {
	var held *driver.HeldError
	err := s.read(ctx, "acquire", func() (err error) {
		held, err = refusal(s.stmts[blocker].QueryRowContext(ctx, name, owner), name)
		return err
	})
	if err == nil && held.Token != 0 {
		return held
	}
	return err
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
	// Those who want a lock can wait for those who have one.
	err := s.together(ctx, "renew", &job{urgent: true, run: func(ctx context.Context, use prepared) error {
		renewed = make(map[rowKey]bool, len(grants))
		return each(ctx, use(renew), []any{encode(rows)}, func(scan func(...any) error) error {
			var key rowKey
			err := scan(&key.name, &key.owner)
			renewed[key] = true
			return err
		})
	}})
	if err != nil {
		return nil, err
	}
	return renewed, nil
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
func (s *Store) change(ctx context.Context, op string, stmt statement, args ...any) (bool, error) {
	var rows int64
	err := s.writeTogether(ctx, op, func(ctx context.Context, use prepared) error {
		result, err := use(stmt).ExecContext(ctx, args...)
		if err != nil {
			return err
		}
		rows, err = result.RowsAffected()
		return err
	})
	if err != nil {
		return false, err
	}
	return rows > 0, nil
}

// each runs a statement and calls fn for each row of the answer.
func each(ctx context.Context, stmt *sql.Stmt, args []any, fn func(scan func(...any) error) error) error {
	rows, err := stmt.QueryContext(ctx, args...)
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

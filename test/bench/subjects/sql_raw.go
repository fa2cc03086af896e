package subjects

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/sqllock"
)

// rawSQL is the floor: the two prepared statements of the row scheme, with
// nothing around them. It records them from the store itself.
type rawSQL struct {
	store            *sqllock.Store // creates the rows
	db               *sql.DB
	acquire, release *rawStatement
	commandCount     atomic.Uint64
}

// rawStatement is a statement with the arguments of one worker.
type rawStatement struct {
	stmt  *sql.Stmt
	args  []any // with placeholders
	query bool
}

// Placeholders for the arguments that differ between workers and acquisitions.
type placeholder int

const (
	itsName placeholder = iota
	itsOwner
	itsToken
)

func (s *rawStatement) fill(name, owner string, token int64) []any {
	args := slices.Clone(s.args)
	for i, arg := range args {
		switch arg {
		case itsName:
			args[i] = name
		case itsOwner:
			args[i] = owner
		case itsToken:
			args[i] = token
		}
	}
	return args
}

func openRawSQL(kind *sqlKind) func(string) (func(context.Context) (Client, error), error) {
	return func(dir string) (func(context.Context) (Client, error), error) {
		return func(ctx context.Context) (Client, error) {
			connector, err := kind.connector(dir)
			if err != nil {
				return nil, err
			}
			acquire, release, err := recordStatements(ctx, kind, connector)
			if err != nil {
				return nil, fmt.Errorf("recording the statements of the store: %w", err)
			}
			c := &rawSQL{db: newPool(connector)}
			if err := c.open(ctx, kind, acquire, release); err != nil {
				return nil, errors.Join(err, c.Close())
			}
			return c, nil
		}, nil
	}
}

func (c *rawSQL) open(ctx context.Context, kind *sqlKind, acquire, release sent) (err error) {
	if c.store, err = sqllock.New(ctx, c.db, &sqllock.Options{Dialect: kind.dialect}); err != nil {
		return err
	}
	if c.acquire, err = c.prepare(ctx, acquire); err != nil {
		return err
	}
	c.release, err = c.prepare(ctx, release)
	return err
}

func (c *rawSQL) prepare(ctx context.Context, s sent) (*rawStatement, error) {
	stmt, err := c.db.PrepareContext(ctx, s.text)
	raw := &rawStatement{stmt: stmt, query: s.query}
	for _, arg := range s.args {
		raw.args = append(raw.args, arg)
	}
	return raw, err
}

// recordStatements acquires and releases a lock with a store, and returns the
// statements that it executed. Placeholders replace names, owners and tokens.
func recordStatements(ctx context.Context, kind *sqlKind, connector sqldriver.Connector) (acquire, release sent, err error) {
	r := &sqlRecorder{Connector: connector}
	db := newPool(r)
	defer func() { err = errors.Join(err, db.Close()) }()
	store, err := sqllock.New(ctx, db, &sqllock.Options{Dialect: kind.dialect})
	if err != nil {
		return acquire, release, err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	name := "bench/recorded/" + driver.NewOwner().Hex() // unique across processes
	for range 3 {                                       // the first call creates the row
		owner := driver.NewOwner()
		r.drain()
		grant, err := store.Acquire(ctx, driver.Request{Name: name, Owner: owner, TTL: dlock.DefaultTTL, Holder: driver.Holder{Host: "bench", PID: 4711, Program: "bench"}})
		if err != nil {
			return acquire, release, err
		}
		acquired := r.drain()
		if err := store.Release(ctx, grant); err != nil {
			return acquire, release, err
		}
		released := r.drain()
		last := grant.Token + store.Traits().TokenStep - 1 // which the row has
		if acquire, err = onlyStatement(acquired, name, owner.Hex(), last); err != nil {
			continue // of the first call
		}
		release, err = onlyStatement(released, name, owner.Hex(), last)
		if err != nil {
			return acquire, release, err
		}
	}
	if acquire.text == "" || release.text == "" {
		err = errors.New("the store needed more than one statement each time")
	}
	return acquire, release, err
}

// onlyStatement returns the single statement about the lock.
func onlyStatement(all []sent, name, owner string, token uint64) (sent, error) {
	all = slices.DeleteFunc(all, func(s sent) bool { return !slices.Contains(s.args, sqldriver.Value(name)) })
	if len(all) != 1 {
		return sent{}, fmt.Errorf("%d statements, want one: %v", len(all), all)
	}
	s := all[0]
	for i, arg := range s.args {
		switch arg {
		case name:
			s.args[i] = itsName
		case owner:
			s.args[i] = itsOwner
		case int64(token):
			s.args[i] = itsToken
		}
	}
	return s, nil
}

func (c *rawSQL) Worker(ctx context.Context, name string) (Worker, error) {
	grant, err := c.store.Acquire(ctx, driver.Request{Name: name, Owner: driver.NewOwner(), TTL: dlock.DefaultTTL})
	if err == nil {
		err = c.store.Release(ctx, grant)
	}
	if errors.Is(err, driver.ErrHeld) { // then the row exists
		err = nil
	}
	return &rawSQLWorker{rawSQL: c, name: name, owner: driver.NewOwner().Hex()}, err
}

func (c *rawSQL) Commands() (uint64, bool) { return c.commandCount.Load(), true }

func (c *rawSQL) Close() error {
	var err error
	if c.store != nil {
		err = c.store.Close()
	}
	return errors.Join(err, c.db.Close()) // closes the statements
}

type rawSQLWorker struct {
	*rawSQL
	name, owner string
	token       int64
}

func (w *rawSQLWorker) Lock(ctx context.Context) (err error) {
	for {
		w.commandCount.Add(1)
		args := w.acquire.fill(w.name, w.owner, 0)
		if w.acquire.query {
			w.token = 0
			err = w.acquire.stmt.QueryRowContext(ctx, args...).Scan(&w.token)
			if errors.Is(err, sql.ErrNoRows) {
				err = nil
			}
		} else {
			w.token, err = inserted(w.acquire.stmt.ExecContext(ctx, args...))
		}
		if err != nil || w.token != 0 {
			return err
		}
		if err := millisecond(ctx); err != nil {
			return err
		}
	}
}

// inserted returns the token where the server returns it as the ID of a row.
func inserted(result sql.Result, err error) (int64, error) {
	if err != nil {
		return 0, err
	}
	return result.LastInsertId()
}

func (w *rawSQLWorker) Unlock(ctx context.Context) error {
	w.commandCount.Add(1)
	args := w.release.fill(w.name, w.owner, w.token)
	if w.release.query {
		rows, err := w.release.stmt.QueryContext(ctx, args...)
		if err != nil {
			return err
		}
		found := rows.Next()
		if err := errors.Join(rows.Close(), rows.Err()); err != nil || found {
			return err
		}
		return driver.ErrNotHeld
	}
	result, err := w.release.stmt.ExecContext(ctx, args...)
	if err != nil {
		return err
	}
	if n, err := result.RowsAffected(); err != nil || n != 0 {
		return err
	}
	return driver.ErrNotHeld
}

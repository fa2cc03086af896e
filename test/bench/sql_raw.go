package main

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

// rawSQL is the floor: the two statements of the row scheme, prepared, with
// nothing around them. What they are it learns from the store itself.
type rawSQL struct {
	store        *sqllock.Store // makes the rows
	db           *sql.DB
	take, give   *rawStatement
	commandCount atomic.Uint64
}

// rawStatement is a statement with the arguments of one worker.
type rawStatement struct {
	stmt  *sql.Stmt
	args  []any // placeholders where they differ
	query bool
}

// Placeholders for what differs between workers and turns.
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

func openRawSQL(kind *sqlKind) func(string) (func(context.Context) (client, error), error) {
	return func(dir string) (func(context.Context) (client, error), error) {
		return func(ctx context.Context) (client, error) {
			connector, err := kind.connector(dir)
			if err != nil {
				return nil, err
			}
			take, give, err := learnSQL(ctx, kind, connector)
			if err != nil {
				return nil, fmt.Errorf("learning what the store sends: %w", err)
			}
			c := &rawSQL{db: newPool(connector)}
			if err := c.open(ctx, kind, take, give); err != nil {
				return nil, errors.Join(err, c.close())
			}
			return c, nil
		}, nil
	}
}

func (c *rawSQL) open(ctx context.Context, kind *sqlKind, take, give sent) (err error) {
	if c.store, err = sqllock.New(ctx, c.db, &sqllock.Options{Dialect: kind.dialect}); err != nil {
		return err
	}
	if c.take, err = c.prepare(ctx, take); err != nil {
		return err
	}
	c.give, err = c.prepare(ctx, give)
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

// learnSQL lets a store take and give a lock, and returns what it sent for that.
// Names, owners and tokens are replaced by placeholders.
func learnSQL(ctx context.Context, kind *sqlKind, connector sqldriver.Connector) (take, give sent, err error) {
	r := &sqlRecorder{Connector: connector}
	db := newPool(r)
	defer func() { err = errors.Join(err, db.Close()) }()
	store, err := sqllock.New(ctx, db, &sqllock.Options{Dialect: kind.dialect})
	if err != nil {
		return take, give, err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	name := "bench/lesson/" + driver.NewOwner().Hex() // several processes learn at once
	for range 3 {                                     // the first one makes the row
		owner := driver.NewOwner()
		r.take()
		grant, err := store.Acquire(ctx, driver.Request{Name: name, Owner: owner, TTL: dlock.DefaultTTL, Holder: driver.Holder{Host: "bench", PID: 4711, Program: "bench"}})
		if err != nil {
			return take, give, err
		}
		taken := r.take()
		if err := store.Release(ctx, grant); err != nil {
			return take, give, err
		}
		given := r.take()
		if take, err = theOne(taken, name, owner.Hex(), grant.Token); err != nil {
			continue // of the first one
		}
		give, err = theOne(given, name, owner.Hex(), grant.Token)
		if err != nil {
			return take, give, err
		}
	}
	if take.text == "" || give.text == "" {
		err = errors.New("it took more than one statement each time")
	}
	return take, give, err
}

// theOne is the one statement that is about the lock.
func theOne(all []sent, name, owner string, token uint64) (sent, error) {
	all = slices.DeleteFunc(all, func(s sent) bool { return !slices.Contains(s.args, sqldriver.Value(name)) })
	if len(all) != 1 {
		return sent{}, fmt.Errorf("%d statements instead of one: %v", len(all), all)
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

func (c *rawSQL) worker(ctx context.Context, name string) (worker, error) {
	grant, err := c.store.Acquire(ctx, driver.Request{Name: name, Owner: driver.NewOwner(), TTL: dlock.DefaultTTL})
	if err == nil {
		err = c.store.Release(ctx, grant)
	}
	if errors.Is(err, driver.ErrHeld) { // then there is a row
		err = nil
	}
	return &rawSQLWorker{rawSQL: c, name: name, owner: driver.NewOwner().Hex()}, err
}

func (c *rawSQL) commands() (uint64, bool) { return c.commandCount.Load(), true }

func (c *rawSQL) close() error {
	var err error
	if c.store != nil {
		err = c.store.Close()
	}
	return errors.Join(err, c.db.Close()) // with the statements
}

type rawSQLWorker struct {
	*rawSQL
	name, owner string
	token       int64
}

func (w *rawSQLWorker) lock(ctx context.Context) (err error) {
	for {
		w.commandCount.Add(1)
		args := w.take.fill(w.name, w.owner, 0)
		if w.take.query {
			w.token = 0
			err = w.take.stmt.QueryRowContext(ctx, args...).Scan(&w.token)
			if errors.Is(err, sql.ErrNoRows) {
				err = nil
			}
		} else {
			w.token, err = inserted(w.take.stmt.ExecContext(ctx, args...))
		}
		if err != nil || w.token != 0 {
			return err
		}
		if err := millisecond(ctx); err != nil {
			return err
		}
	}
}

// inserted is the token where the server returns it as the id of a row.
func inserted(result sql.Result, err error) (int64, error) {
	if err != nil {
		return 0, err
	}
	return result.LastInsertId()
}

func (w *rawSQLWorker) unlock(ctx context.Context) error {
	w.commandCount.Add(1)
	args := w.give.fill(w.name, w.owner, w.token)
	if w.give.query {
		rows, err := w.give.stmt.QueryContext(ctx, args...)
		if err != nil {
			return err
		}
		found := rows.Next()
		if err := errors.Join(rows.Close(), rows.Err()); err != nil || found {
			return err
		}
		return driver.ErrNotHeld
	}
	result, err := w.give.stmt.ExecContext(ctx, args...)
	if err != nil {
		return err
	}
	if n, err := result.RowsAffected(); err != nil || n != 0 {
		return err
	}
	return driver.ErrNotHeld
}

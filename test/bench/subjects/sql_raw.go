package subjects

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/sqllock"
)

// openRaw opens the floor: the two prepared statements of the row scheme, with
// nothing around them. It records them from the store itself.
func (k *sqlKind) openRaw(ctx context.Context, at Place) (*Client, error) {
	connector, err := k.connect(at.Addrs[0], benchDatabase)
	if err != nil {
		return nil, err
	}
	acquire, release, err := k.recordStatements(ctx, connector)
	if err != nil {
		return nil, fmt.Errorf("recording the statements of the store: %w", err)
	}
	db := pooled(connector)
	store, err := sqllock.New(ctx, db, &sqllock.Options{Dialect: k.dialect}) // creates the rows
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	rows := k.dialect == sqllock.Postgres
	closeAll := func() error { return errors.Join(store.Close(), db.Close()) } // closes the statements
	if err := errors.Join(acquire.prepare(ctx, db, rows), release.prepare(ctx, db, rows)); err != nil {
		return nil, errors.Join(err, closeAll())
	}
	var sent atomic.Uint64
	newWorker := func(ctx context.Context, want Want) (Worker, error) {
		grant, err := store.Acquire(ctx, driver.Request{Name: want.Name, Owner: driver.NewOwner(), TTL: dlock.DefaultTTL})
		if err == nil {
			err = store.Release(ctx, grant)
		}
		if errors.Is(err, driver.ErrHeld) { // then the row exists
			err = nil
		}
		owner := driver.NewOwner().Hex()
		var token int64
		return Worker{
			Lock: polling(func(ctx context.Context) (_ bool, err error) {
				sent.Add(1)
				token, err = acquire.insert(ctx, acquire.fill(want.Name, owner, 0))
				return token != 0, err
			}),
			Unlock: func(ctx context.Context) error {
				sent.Add(1)
				return released(release.change(ctx, release.fill(want.Name, owner, token)))
			},
		}, err
	}
	return &Client{newWorker, sent.Load, closeAll}, nil
}

// statement is a recorded statement.
type statement struct {
	text string
	args []sqldriver.Value // with placeholders
	stmt *sql.Stmt
	rows bool // it returns rows
}

// Placeholders for the arguments that differ between workers and acquisitions.
type placeholder int

const (
	itsName placeholder = iota
	itsOwner
	itsToken
)

func (s *statement) prepare(ctx context.Context, db *sql.DB, rows bool) (err error) {
	s.stmt, err = db.PrepareContext(ctx, s.text)
	s.rows = rows
	return err
}

func (s *statement) fill(name, owner string, token int64) []any {
	args := make([]any, len(s.args))
	for i, arg := range s.args {
		switch arg {
		case itsName:
			args[i] = name
		case itsOwner:
			args[i] = owner
		case itsToken:
			args[i] = token
		default:
			args[i] = arg
		}
	}
	return args
}

// insert returns the token of the grant, or zero: as a row, or as the ID of one.
func (s *statement) insert(ctx context.Context, args []any) (token int64, err error) {
	if s.rows {
		err = s.stmt.QueryRowContext(ctx, args...).Scan(&token)
		if errors.Is(err, sql.ErrNoRows) {
			err = nil
		}
		return token, err
	}
	result, err := s.stmt.ExecContext(ctx, args...)
	if err != nil {
		return 0, err
	}
	return result.LastInsertId()
}

// change reports whether the statement found a row.
func (s *statement) change(ctx context.Context, args []any) (found bool, err error) {
	if s.rows {
		rows, err := s.stmt.QueryContext(ctx, args...)
		if err != nil {
			return false, err
		}
		found = rows.Next()
		return found, errors.Join(rows.Close(), rows.Err())
	}
	result, err := s.stmt.ExecContext(ctx, args...)
	if err != nil {
		return false, err
	}
	n, err := result.RowsAffected()
	return n != 0, err
}

// recordStatements acquires and releases a lock with a store, and returns the
// statements that it executed. Placeholders replace names, owners and tokens.
func (k *sqlKind) recordStatements(
	ctx context.Context, connector sqldriver.Connector,
) (acquire, release *statement, err error) {
	seen := &sqlRecorder{Connector: connector}
	db := pooled(seen)
	defer func() { err = errors.Join(err, db.Close()) }()
	store, err := sqllock.New(ctx, db, &sqllock.Options{Dialect: k.dialect})
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	name := "bench/recorded/" + driver.NewOwner().Hex() // unique across processes
	for range 3 {                                       // the first call creates the row
		owner := driver.NewOwner()
		seen.take()
		grant, err := store.Acquire(ctx, driver.Request{
			Name: name, Owner: owner, TTL: dlock.DefaultTTL, Holder: driver.Holder{Host: "bench", PID: 4711, Program: "bench"},
		})
		if err != nil {
			return nil, nil, err
		}
		acquired := seen.take()
		if err := store.Release(ctx, grant); err != nil {
			return nil, nil, err
		}
		last := int64(grant.Token + store.Traits().TokenStep - 1) // which the row has
		places := map[sqldriver.Value]placeholder{name: itsName, owner.Hex(): itsOwner, last: itsToken}
		acquire, release = onlyOne(acquired, name, places), onlyOne(seen.take(), name, places)
		if acquire != nil && release != nil {
			return acquire, release, nil
		}
	}
	return nil, nil, errors.New("the store needed more than one statement each time")
}

// onlyOne returns the single statement about the lock, or nil.
func onlyOne(all []*statement, name string, places map[sqldriver.Value]placeholder) *statement {
	all = slices.DeleteFunc(all, func(s *statement) bool { return !slices.Contains(s.args, sqldriver.Value(name)) })
	if len(all) != 1 {
		return nil
	}
	for i, arg := range all[0].args {
		if place, ok := places[arg]; ok {
			all[0].args[i] = place
		}
	}
	return all[0]
}

// sqlRecorder is a connector that records the executed statements.
type sqlRecorder struct {
	sqldriver.Connector
	mu  sync.Mutex
	all []*statement
}

func (r *sqlRecorder) note(text string, args []sqldriver.NamedValue) {
	s := &statement{text: text}
	for _, arg := range args {
		s.args = append(s.args, arg.Value)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, s)
}

// take returns the statements since the last call.
func (r *sqlRecorder) take() []*statement {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := r.all
	r.all = nil
	return all
}

// Connect implements driver.Connector.
func (r *sqlRecorder) Connect(ctx context.Context) (sqldriver.Conn, error) {
	conn, err := r.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &recordedConn{conn.(preparing), r}, nil
}

// preparing is the set of interfaces that both drivers' connections have and
// database/sql uses, but for those that execute statements without preparing them.
type preparing interface {
	sqldriver.Conn
	sqldriver.ConnBeginTx
	sqldriver.ConnPrepareContext
	sqldriver.NamedValueChecker
	sqldriver.SessionResetter
}

type recordedConn struct {
	preparing
	r *sqlRecorder
}

// PrepareContext implements driver.ConnPrepareContext.
func (c *recordedConn) PrepareContext(ctx context.Context, text string) (sqldriver.Stmt, error) {
	stmt, err := c.preparing.PrepareContext(ctx, text)
	if err != nil {
		return nil, err
	}
	return &recordedStmt{stmt.(executing), text, c.r}, nil
}

type executing interface {
	sqldriver.Stmt
	sqldriver.StmtExecContext
	sqldriver.StmtQueryContext
}

type recordedStmt struct {
	executing
	text string
	r    *sqlRecorder
}

// ExecContext implements driver.StmtExecContext.
func (s *recordedStmt) ExecContext(ctx context.Context, args []sqldriver.NamedValue) (sqldriver.Result, error) {
	s.r.note(s.text, args)
	return s.executing.ExecContext(ctx, args)
}

// QueryContext implements driver.StmtQueryContext.
func (s *recordedStmt) QueryContext(ctx context.Context, args []sqldriver.NamedValue) (sqldriver.Rows, error) {
	s.r.note(s.text, args)
	return s.executing.QueryContext(ctx, args)
}

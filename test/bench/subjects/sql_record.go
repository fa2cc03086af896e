package subjects

import (
	"context"
	"database/sql/driver"
	"errors"
	"sync"
)

// sent is a statement that was executed, with its arguments.
type sent struct {
	text  string
	args  []driver.Value
	query bool // it returns rows
}

// sqlRecorder is a connector that records the executed statements.
type sqlRecorder struct {
	driver.Connector
	mu  sync.Mutex
	all []sent
}

func (r *sqlRecorder) note(text string, args []driver.NamedValue, query bool) {
	values := make([]driver.Value, len(args))
	for i, arg := range args {
		values[i] = arg.Value
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, sent{text, values, query})
}

// drain returns the statements since the last call.
func (r *sqlRecorder) drain() []sent {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := r.all
	r.all = nil
	return all
}

// Connect implements driver.Connector.
func (r *sqlRecorder) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := r.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	full, ok := conn.(fullConn)
	if !ok {
		return nil, errors.Join(errors.New("the driver lacks the interfaces that recording needs"), conn.Close())
	}
	return &recordedConn{full, r}, nil
}

// fullConn is the set of interfaces that both drivers' connections have and
// database/sql uses.
type fullConn interface { //nolint:interfacebloat // the drivers decide
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
	driver.NamedValueChecker
	driver.SessionResetter
}

type recordedConn struct {
	fullConn
	r *sqlRecorder
}

func (c *recordedConn) PrepareContext(ctx context.Context, text string) (driver.Stmt, error) {
	stmt, err := c.fullConn.PrepareContext(ctx, text)
	if err != nil {
		return nil, err
	}
	full, ok := stmt.(fullStmt)
	if !ok {
		return nil, errors.Join(errors.New("the driver's statements lack the interfaces that recording needs"), stmt.Close())
	}
	return &recordedStmt{full, text, c.r}, nil
}

func (c *recordedConn) ExecContext(ctx context.Context, text string, args []driver.NamedValue) (driver.Result, error) {
	result, err := c.fullConn.ExecContext(ctx, text, args)
	if !errors.Is(err, driver.ErrSkip) { // database/sql prepares the statement instead
		c.r.note(text, args, false)
	}
	return result, err
}

func (c *recordedConn) QueryContext(ctx context.Context, text string, args []driver.NamedValue) (driver.Rows, error) {
	rows, err := c.fullConn.QueryContext(ctx, text, args)
	if !errors.Is(err, driver.ErrSkip) {
		c.r.note(text, args, true)
	}
	return rows, err
}

type fullStmt interface {
	driver.Stmt
	driver.StmtExecContext
	driver.StmtQueryContext
}

type recordedStmt struct {
	fullStmt
	text string
	r    *sqlRecorder
}

func (s *recordedStmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	s.r.note(s.text, args, false)
	return s.fullStmt.ExecContext(ctx, args)
}

func (s *recordedStmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	s.r.note(s.text, args, true)
	return s.fullStmt.QueryContext(ctx, args)
}

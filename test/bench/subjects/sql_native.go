package subjects

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"hash/fnv"
	"sync/atomic"

	"github.com/dlock-go/dlock/driver"
)

// nativeSQL is the server's own lock, as a program would use it: GET_LOCK, or an
// advisory lock. Every goroutine has a connection, on which it waits.
type nativeSQL struct {
	kind         *sqlKind
	db           *sql.DB
	commandCount atomic.Uint64
}

func openNativeSQL(kind *sqlKind) func(string) (func(context.Context) (Client, error), error) {
	return func(dir string) (func(context.Context) (Client, error), error) {
		return func(context.Context) (Client, error) {
			connector, err := kind.connector(dir)
			if err != nil {
				return nil, err
			}
			return &nativeSQL{kind: kind, db: newPool(connector)}, nil
		}, nil
	}
}

func (c *nativeSQL) Worker(ctx context.Context, name string) (Worker, error) {
	return c.connect(ctx, name, c.kind.nativeAcquire, c.kind.nativeRelease)
}

// ModeWorker is for shared and exclusive locks: there are no semaphores.
func (c *nativeSQL) ModeWorker(ctx context.Context, name string, mode driver.Mode) (Worker, error) {
	if mode.Shared {
		return c.connect(ctx, name, c.kind.sharedAcquire, c.kind.sharedRelease)
	}
	return c.Worker(ctx, name)
}

func (c *nativeSQL) connect(ctx context.Context, name, acquire, release string) (Worker, error) {
	w := &nativeWorker{nativeSQL: c, name: c.kind.nativeKey(name), acquire: acquire, release: release}
	return w, w.connect(ctx)
}

func (c *nativeSQL) Commands() (uint64, bool) { return c.commandCount.Load(), true }
func (c *nativeSQL) Close() error             { return c.db.Close() }

type nativeWorker struct {
	*nativeSQL
	name any

	acquire, release string

	conn       *sql.Conn // nil after an error
	lockStmt   *sql.Stmt
	unlockStmt *sql.Stmt
}

func (w *nativeWorker) connect(ctx context.Context) (err error) {
	if w.conn, err = w.db.Conn(ctx); err != nil {
		return err
	}
	if w.lockStmt, err = w.conn.PrepareContext(ctx, w.acquire); err != nil {
		return err
	}
	w.unlockStmt, err = w.conn.PrepareContext(ctx, w.release)
	return err
}

func (w *nativeWorker) Lock(ctx context.Context) error {
	if w.conn == nil {
		if err := w.connect(ctx); err != nil {
			return err
		}
	}
	return w.ask(ctx, w.lockStmt)
}

func (w *nativeWorker) Unlock(ctx context.Context) error { return w.ask(ctx, w.unlockStmt) }

func (w *nativeWorker) ask(ctx context.Context, stmt *sql.Stmt) error {
	w.commandCount.Add(1)
	var answer sql.NullBool
	err := stmt.QueryRowContext(ctx, w.name).Scan(&answer)
	switch {
	case err != nil: // the connection of a cancelled wait is broken
		_ = w.conn.Raw(func(any) error { return sqldriver.ErrBadConn })
		w.conn = nil
		return err
	case !answer.Bool:
		return errors.New("the server did not grant the lock")
	}
	return nil
}

// hashed returns the hash of a name, since an advisory lock has a number instead
// of a name.
func hashed(name string) any {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name)) // never fails
	return int64(h.Sum64())
}

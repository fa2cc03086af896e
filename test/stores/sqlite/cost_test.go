package sqlite

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"modernc.org/sqlite"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/sqllock"
	"github.com/dlock-go/dlock/test/harness/await"
)

// counting is a way to SQLite that counts the statements that are run.
type counting struct {
	dsn        string
	statements atomic.Int64
	writes     atomic.Int64 // statements that write, if they were prepared
}

// Driver implements sqldriver.Connector.
func (c *counting) Driver() sqldriver.Driver { return &sqlite.Driver{} }

// Connect implements sqldriver.Connector.
func (c *counting) Connect(context.Context) (sqldriver.Conn, error) {
	conn, err := c.Driver().Open(c.dsn)
	if err != nil {
		return nil, err
	}
	return countingConn{conn.(fullConn), conn.(sqldriver.SessionResetter), conn.(sqldriver.Validator), c}, nil
}

// fullConn is what the driver's connections can do and database/sql asks for.
type fullConn interface {
	sqldriver.Conn
	sqldriver.ConnBeginTx
	sqldriver.ConnPrepareContext
	sqldriver.ExecerContext
	sqldriver.QueryerContext
}

type countingConn struct {
	fullConn
	sqldriver.SessionResetter
	sqldriver.Validator
	c *counting
}

func (c countingConn) PrepareContext(ctx context.Context, query string) (sqldriver.Stmt, error) {
	stmt, err := c.fullConn.PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	verb, _, _ := strings.Cut(query, " ")
	return countingStmt{stmt.(fullStmt), c.c, verb == "INSERT" || verb == "UPDATE" || verb == "DELETE"}, nil
}

func (c countingConn) ExecContext(ctx context.Context, query string, args []sqldriver.NamedValue) (sqldriver.Result, error) {
	c.c.statements.Add(1)
	return c.fullConn.ExecContext(ctx, query, args)
}

func (c countingConn) QueryContext(ctx context.Context, query string, args []sqldriver.NamedValue) (sqldriver.Rows, error) {
	c.c.statements.Add(1)
	return c.fullConn.QueryContext(ctx, query, args)
}

type fullStmt interface {
	sqldriver.Stmt
	sqldriver.StmtExecContext
	sqldriver.StmtQueryContext
}

type countingStmt struct {
	fullStmt
	c      *counting
	writes bool
}

func (s countingStmt) count() {
	s.c.statements.Add(1)
	if s.writes {
		s.c.writes.Add(1)
	}
}

func (s countingStmt) ExecContext(ctx context.Context, args []sqldriver.NamedValue) (sqldriver.Result, error) {
	s.count()
	return s.fullStmt.ExecContext(ctx, args)
}

func (s countingStmt) QueryContext(ctx context.Context, args []sqldriver.NamedValue) (sqldriver.Rows, error) {
	s.count()
	return s.fullStmt.QueryContext(ctx, args)
}

// cpuTime is what this process has used so far.
func cpuTime(t testing.TB) time.Duration {
	t.Helper()
	var usage syscall.Rusage
	check(t, syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// TestIdleWaiting: a process that waits for 1,000 names needs a few connections. While nothing
// happens it makes a few statements a second in total, uses no CPU worth the name, and still
// notices each release at once.
func TestIdleWaiting(t *testing.T) { // not parallel: it measures the process
	path := tempFile(t)
	holder := openStore(t, path)
	way := &counting{dsn: sqllock.SQLiteDSN(path)}
	db := sql.OpenDB(way)
	t.Cleanup(func() { _ = db.Close() })
	const names = 1000
	db.SetMaxIdleConns(names) // so that it has as many as it needed at most
	store := newStore(t, db)

	type waiter struct {
		release func()
		woken   <-chan struct{}
	}
	reqs := make([]driver.Request, names)
	for i := range reqs {
		reqs[i] = request(fmt.Sprintf("name/%d", i))
		reqs[i].TTL = 10 * time.Minute
	}
	// All at once: the rows of waiters are written again after ten seconds.
	grants, err := holder.AcquireAll(t.Context(), reqs)
	check(t, err)
	for range 2 { // a name that was refused is only read
		var attempts sync.WaitGroup
		for _, req := range reqs {
			attempts.Go(func() {
				if _, err := store.Acquire(t.Context(), request(req.Name)); !errors.Is(err, driver.ErrHeld) {
					t.Errorf("Acquire of %q, which is held: %v", req.Name, err)
				}
			})
		}
		attempts.Wait()
	}
	waiters := make([]waiter, names)
	for i, grant := range grants {
		woken, stop := watch(t, store, request(grant.Name))
		defer stop()
		waiters[i] = waiter{func() { mustRelease(t, holder, grant) }, woken}
	}
	// When others see that it waits for all of them, it has settled.
	plain := openDB(t, path)
	await.Until(t, "all waiters are seen", func() bool {
		return number(t, plain, `SELECT count(*) FROM dlock_queue WHERE fair = 0`) == names
	})
	quiet := time.NewTimer(time.Second) // the polls that follow a change
	<-quiet.C

	if n := db.Stats().OpenConnections; n > 12 {
		t.Errorf("%d connections for %d waiters", n, names)
	}
	const window = 4 * time.Second
	before, used := way.statements.Load(), cpuTime(t)
	quiet.Reset(window)
	<-quiet.C
	statements, cpu := way.statements.Load()-before, cpuTime(t)-used
	perSecond := float64(statements) / window.Seconds()
	t.Logf("waiting for %d names: %.1f statements a second, %.2f %% of a core", names, perSecond, 100*cpu.Seconds()/window.Seconds())
	if perSecond > 5 {
		t.Errorf("waiting for %d names takes %.1f statements a second, want at most 5", names, perSecond)
	}
	if share := cpu.Seconds() / window.Seconds(); share > 0.05 && !raceEnabled {
		t.Errorf("waiting for %d names takes %.1f %% of a core, want at most 5", names, 100*share)
	}
	for _, i := range []int{0, 500, 999} {
		select {
		case <-waiters[i].woken:
			t.Errorf("waiter %d was woken while the lock was held", i)
		default:
		}
		start := time.Now()
		waiters[i].release()
		await.Event(t, waiters[i].woken, "wake-up")
		t.Logf("woken %v after the release began", time.Since(start))
		waiters[i].release = nil
	}
	for _, w := range waiters {
		if w.release != nil {
			w.release()
		}
	}
	for _, w := range waiters {
		if w.release != nil {
			await.Event(t, w.woken, "wake-up")
		}
	}
}

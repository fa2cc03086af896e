package sqllock

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"testing"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/sqldb"
)

// pgError is like the error of github.com/jackc/pgx/v5/pgconn.
type pgError struct{ code string }

func (e *pgError) Error() string    { return "SQLSTATE " + e.code }
func (e *pgError) SQLState() string { return e.code }

// TestUnknownCommitIsNotRetried: a transaction that may have been committed is not run again,
// because a Release would find nothing the second time and report a loss.
func TestUnknownCommitIsNotRetried(t *testing.T) {
	t.Parallel()
	facts, err := sqldb.FactsOf(Postgres)
	if err != nil {
		t.Fatal(err)
	}
	s := &Store{facts: facts, dialect: dialects[Postgres]}
	ended := fmt.Errorf("commit: %w", &pgError{"57P01"})
	if !s.isRetryable(ended) {
		t.Error("a statement before which the server ended the connection is not tried again")
	}
	if s.isRetryable(&unknownOutcomeError{ended}) {
		t.Error("a transaction during whose commit the server ended the connection is tried again")
	}
	runs := 0
	_ = s.retryWhileBusy(t.Context(), func() error {
		runs++
		return &unknownOutcomeError{ended}
	})
	if runs != 1 {
		t.Errorf("it is run %d times", runs)
	}
}

// endingConn is a connection that the server ends during the first statement, as answers tell.
type endingConn struct {
	sqldriver.Conn
	statements *int
}

func (c endingConn) Connect(context.Context) (sqldriver.Conn, error) { return c, nil }
func (c endingConn) Driver() sqldriver.Driver                        { return nil }
func (c endingConn) Close() error                                    { return nil }

func (c endingConn) ExecContext(context.Context, string, []sqldriver.NamedValue) (sqldriver.Result, error) {
	if *c.statements++; *c.statements == 1 {
		return nil, &pgError{"57P01"}
	}
	return sqldriver.RowsAffected(0), nil
}

// TestReleaseOnAnEndedConnection: if the server ends the connection of a Release, the Release may have
// happened. A second one that finds nothing does not mean that the lock was lost.
func TestReleaseOnAnEndedConnection(t *testing.T) {
	t.Parallel()
	for name, call := range map[string]func(*Store) error{
		"Release": func(s *Store) error {
			return s.Release(t.Context(), driver.Grant{Name: "x", Owner: driver.NewOwner(), Token: 7})
		},
		"Break": func(s *Store) error { return s.Break(t.Context(), "x", 7) },
	} {
		s, statements := idleStore(t), 0
		s.db = sql.OpenDB(endingConn{statements: &statements})
		if err := call(s); !errors.Is(err, driver.ErrUnreachable) || errors.Is(err, driver.ErrNotHeld) || statements != 2 {
			t.Errorf("%s: %v after %d statements; want ErrUnreachable after 2", name, err, statements)
		}
		if err := errors.Join(s.Close(), s.db.Close()); err != nil {
			t.Error(err)
		}
	}
}

package sqllock

import (
	"fmt"
	"testing"

	"github.com/dlock-go/dlock/internal/sqldb"
)

// pgError is like the error of github.com/jackc/pgx/v5/pgconn.
type pgError struct{ code string }

func (e *pgError) Error() string    { return "SQLSTATE " + e.code }
func (e *pgError) SQLState() string { return e.code }

// TestUnsureCommitIsNotRetried: a transaction that may have been committed is not run again,
// because a Release would find nothing the second time and report a loss.
func TestUnsureCommitIsNotRetried(t *testing.T) {
	t.Parallel()
	facts, err := sqldb.FactsOf(Postgres)
	if err != nil {
		t.Fatal(err)
	}
	s := &Store{facts: facts}
	ended := fmt.Errorf("commit: %w", &pgError{"57P01"})
	if !s.isRetryable(ended) {
		t.Error("a statement before which the server ended the connection is not tried again")
	}
	if s.isRetryable(&unsureError{ended}) {
		t.Error("a transaction during whose commit the server ended the connection is tried again")
	}
	runs := 0
	_ = s.persist(t.Context(), func() error {
		runs++
		return &unsureError{ended}
	})
	if runs != 1 {
		t.Errorf("it is run %d times", runs)
	}
}

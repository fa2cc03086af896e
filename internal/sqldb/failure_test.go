package sqldb

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/dlock-go/dlock/driver"
)

// mysqlError is like the error of github.com/go-sql-driver/mysql.
type mysqlError struct {
	Number  uint16
	Message string
}

func (e *mysqlError) Error() string { return fmt.Sprintf("Error %d: %s", e.Number, e.Message) }

// pgError is like the error of github.com/jackc/pgx/v5/pgconn.
type pgError struct{ code string }

func (e *pgError) Error() string    { return "SQLSTATE " + e.code }
func (e *pgError) SQLState() string { return e.code }

// numberedError is no error of the server although it has a number.
type numberedError struct{ Number int }

func (numberedError) Error() string { return "numberedError" }

func TestFailures(t *testing.T) {
	for _, test := range []struct {
		dialect Dialect
		err     error
		want    Failure // Meaning: what must be part of it
	}{
		{MySQL, &mysqlError{Number: 1213}, Failure{Retry: true}},
		{MySQL, &mysqlError{Number: 1205}, Failure{Retry: true}},
		{MySQL, fmt.Errorf("wrapped: %w", &mysqlError{Number: 1213}), Failure{Retry: true}},
		{MySQL, fmt.Errorf("%w: %w", ErrReadOnly, &mysqlError{Number: 1213}), Failure{Retry: true}},
		{MySQL, errors.Join(ErrReadOnly, &mysqlError{Number: 1146}), Failure{Missing: true, Meaning: "sqllock.Schema"}},
		{MySQL, &mysqlError{Number: 1142}, Failure{Meaning: "sqllock.Schema", Kind: driver.ErrDenied}},
		{MySQL, &mysqlError{Number: 1046}, Failure{Meaning: "no database", Kind: driver.ErrMisconfigured}},
		{MySQL, &mysqlError{Number: 1193}, Failure{Meaning: "parameter", Kind: driver.ErrMisconfigured}},
		{MySQL, &mysqlError{Number: 1054}, Failure{Missing: true, Meaning: "sqllock.Schema", Kind: driver.ErrMisconfigured}},
		{MySQL, &mysqlError{Number: 1290}, Failure{Meaning: "read-only"}},
		{MySQL, &mysqlError{Number: 4031}, Failure{Retry: true, Meaning: "idle"}},
		{MySQL, numberedError{1213}, Failure{}},
		{MySQL, context.Canceled, Failure{}},
		{MySQL, nil, Failure{}},
		{Postgres, &pgError{"40001"}, Failure{Retry: true}},
		{Postgres, fmt.Errorf("wrapped: %w", &pgError{"40P01"}), Failure{Retry: true}},
		{Postgres, &pgError{"57P01"}, Failure{Retry: true}},
		{Postgres, &pgError{"25P03"}, Failure{Retry: true, Meaning: "idle"}},
		{Postgres, &pgError{"25P04"}, Failure{Retry: true, Meaning: "too long"}},
		{Postgres, &pgError{"42P01"}, Failure{Missing: true, Meaning: "sqllock.Schema"}},
		{Postgres, &pgError{"42501"}, Failure{Meaning: "sqllock.Schema", Kind: driver.ErrDenied}},
		{Postgres, &pgError{"42704"}, Failure{Meaning: "parameter", Kind: driver.ErrMisconfigured}},
		{Postgres, &pgError{"42703"}, Failure{Missing: true, Meaning: "sqllock.Schema", Kind: driver.ErrMisconfigured}},
		{Postgres, &pgError{"25006"}, Failure{Meaning: "read-only"}},
		{Postgres, &pgError{"22012"}, Failure{}},
		{Postgres, context.Canceled, Failure{}},
	} {
		facts, err := FactsOf(test.dialect)
		if err != nil {
			t.Fatal(err)
		}
		got := facts.Classify(test.err)
		if got.Retry != test.want.Retry || got.Missing != test.want.Missing || !strings.Contains(got.Meaning, test.want.Meaning) || !errors.Is(got.Kind, test.want.Kind) {
			t.Errorf("%s: %v means %+v, want %+v", test.dialect, test.err, got, test.want)
		}
	}
}

// TestDescribeAfterDeadline: what ends by the deadline of its caller says that the database
// gave no answer, or what kept it from one. What the caller cancels does not.
func TestDescribeAfterDeadline(t *testing.T) {
	late, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	<-late.Done()
	left, leave := context.WithCancel(t.Context())
	leave()
	limit := fmt.Errorf("%w: no answer within 5s", driver.ErrUnreachable)
	limited, end := context.WithTimeoutCause(t.Context(), 0, limit)
	defer end()
	<-limited.Done()
	for _, test := range []struct {
		ctx     context.Context
		failure Failure
		want    string
	}{
		{late, Failure{}, "store unreachable: list: the database gave no answer: context deadline exceeded"},
		{late, Failure{Retry: true, Meaning: "it is locked"}, "store unreachable: list: it is locked: context deadline exceeded"},
		{left, Failure{}, "list: context canceled"},
		{limited, Failure{}, "list: store unreachable: no answer within 5s"},
		{t.Context(), Failure{Kind: driver.ErrDenied, Meaning: "why"}, "permission denied: list: why: the text"},
	} {
		err := test.failure.Describe(test.ctx, "list", errors.New("the text"))
		if err.Error() != test.want {
			t.Errorf("%+v: %q, want %q", test.failure, err, test.want)
		}
		if test.ctx == late && (!errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, driver.ErrUnreachable)) {
			t.Errorf("%v wraps not both the end of the context and ErrUnreachable", err)
		}
	}
}

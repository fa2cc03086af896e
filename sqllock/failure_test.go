package sqllock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
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

// numbered is no error of the server although it has a number.
type numbered struct{ Number int }

func (numbered) Error() string { return "numbered" }

func TestFailures(t *testing.T) {
	for _, test := range []struct {
		dialect Dialect
		err     error
		want    failure // explain: what must be part of it
	}{
		{MySQL, &mysqlError{Number: 1213}, failure{retry: true}},
		{MySQL, &mysqlError{Number: 1205}, failure{retry: true}},
		{MySQL, fmt.Errorf("wrapped: %w", &mysqlError{Number: 1213}), failure{retry: true}},
		{MySQL, fmt.Errorf("%w: %w", errReadOnly, &mysqlError{Number: 1213}), failure{retry: true}},
		{MySQL, errors.Join(errReadOnly, &mysqlError{Number: 1146}), failure{missing: true, explain: "sqllock.Schema"}},
		{MySQL, &mysqlError{Number: 1142}, failure{explain: "sqllock.Schema"}},
		{MySQL, &mysqlError{Number: 1290}, failure{explain: "read-only"}},
		{MySQL, numbered{1213}, failure{}},
		{MySQL, context.Canceled, failure{}},
		{MySQL, nil, failure{}},
		{Postgres, &pgError{"40001"}, failure{retry: true}},
		{Postgres, fmt.Errorf("wrapped: %w", &pgError{"40P01"}), failure{retry: true}},
		{Postgres, &pgError{"57P01"}, failure{retry: true}},
		{Postgres, &pgError{"42P01"}, failure{missing: true, explain: "sqllock.Schema"}},
		{Postgres, &pgError{"42501"}, failure{explain: "sqllock.Schema"}},
		{Postgres, &pgError{"25006"}, failure{explain: "read-only"}},
		{Postgres, &pgError{"22012"}, failure{}},
		{Postgres, context.Canceled, failure{}},
	} {
		got := test.dialect.classify(test.err)
		if got.retry != test.want.retry || got.missing != test.want.missing || !strings.Contains(got.explain, test.want.explain) {
			t.Errorf("%s: %v means %+v, want %+v", test.dialect, test.err, got, test.want)
		}
	}
}

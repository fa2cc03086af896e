package sqldb

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/dlock-go/dlock/driver"
)

var postgresFacts = Facts{
	Dialect: Postgres, Now: postgresNow, Bind: dollars, Answered: postgresAnswered,
	Classify: classifyPostgres,
}

// postgresNow is the database's clock when the statement began. So a statement that had to
// wait for a row takes a lock for less time than was asked for, never for more. The server
// may carry it out after statements that began later, and it must not undo them: every
// statement that extends an expiry keeps the later of the two.
const postgresNow = `floor(date_part('epoch', statement_timestamp()) * 1000)::bigint`

// postgresFailures is keyed by SQLSTATE. Programs that create the same table at the same
// moment get a duplicate of one kind or another.
var postgresFailures = map[string]Failure{
	"40001": {Retry: true, Meaning: "other transactions are in the way"},
	"40P01": {Retry: true, Meaning: "deadlock with another transaction"},
	"55P03": {Retry: true, Meaning: "another transaction keeps a row locked"},
	"57P01": {Retry: true, Ended: true, Meaning: "the server has ended the connection"}, // before the statement, or with it
	"57P05": {Retry: true, Ended: true, Meaning: "the server has ended the connection because it was idle"},
	"25P03": {Retry: true, Ended: true, Meaning: "the server has ended a transaction because it was idle"},
	"25P04": {Retry: true, Ended: true, Meaning: "the server has ended a transaction because it took too long"},
	"23505": {Retry: true},
	"42P07": {Retry: true},
	"42710": {Retry: true},
	"25006": {Meaning: "the server is read-only: it may be a replica"},
	"42P01": {Missing: true, Meaning: "a table is missing: let the store create it, or run the statements that sqllock.Schema returns"},
	"42703": {Missing: true, Meaning: "a table is not as expected: compare it with what sqllock.Schema returns", Kind: driver.ErrMisconfigured},
	"42704": {Meaning: "the server knows no such parameter", Kind: driver.ErrMisconfigured},
	"22P05": {Meaning: "the encoding of the database lacks a character of the name or of the holder's description", Kind: driver.ErrMisconfigured},
	"42501": {Meaning: "the user lacks a right: it needs SELECT, INSERT, UPDATE and DELETE on the tables, which can be created by hand with what sqllock.Schema returns", Kind: driver.ErrDenied},
	"28P01": {Meaning: "wrong user or password", Kind: driver.ErrDenied},
	"28000": {Meaning: "the server does not let this user in", Kind: driver.ErrDenied},
	"3D000": {Meaning: "there is no such database", Kind: driver.ErrMisconfigured},
	"3F000": {Meaning: "there is no schema to create tables in", Kind: driver.ErrMisconfigured},
	"22003": {Number: true, Kind: driver.ErrMisconfigured},
	"53100": {Meaning: "the disk is full", Kind: driver.ErrMisconfigured},
	"26000": {Meaning: "a prepared statement is gone: behind PgBouncer in transaction mode, tell the driver not to prepare (pgx: default_query_exec_mode=exec)"},
	"42P05": {Meaning: "a prepared statement is there already: behind PgBouncer in transaction mode, tell the driver not to prepare (pgx: default_query_exec_mode=exec)"},
}

func classifyPostgres(err error) Failure {
	state := SQLState(err)
	if state == "08P01" && strings.Contains(err.Error(), "statement pooling") {
		return Failure{Meaning: "PgBouncer has pool_mode=statement and allows no transactions: set pool_mode=transaction", Kind: driver.ErrMisconfigured}
	}
	return postgresFailures[state]
}

// CheckPostgres returns an error if the server cannot be written to.
func CheckPostgres(ctx context.Context, on Queryer) error {
	var replica, readOnly bool
	err := on.QueryRowContext(ctx, `SELECT pg_is_in_recovery(), current_setting('transaction_read_only')::boolean`).Scan(&replica, &readOnly)
	switch {
	case err != nil:
		return err
	case replica:
		return fmt.Errorf("%w: it is a replica; connect to the primary server", ErrReadOnly)
	case readOnly:
		return fmt.Errorf("%w: default_transaction_read_only is on", ErrReadOnly)
	}
	return nil
}

// postgresAnswered excludes the class of codes with which poolers report that they lost
// the server.
func postgresAnswered(err error) bool {
	state := SQLState(err)
	return state != "" && !strings.HasPrefix(state, "08")
}

// SQLState returns the code of a PostgreSQL error, as every driver has it.
func SQLState(err error) string {
	type stateError interface {
		error
		SQLState() string
	}
	if coded, ok := errors.AsType[stateError](err); ok {
		return coded.SQLState()
	}
	return ""
}

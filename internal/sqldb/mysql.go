package sqldb

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"reflect"

	"github.com/dlock-go/dlock/driver"
)

var mysqlFacts = Facts{
	Dialect: MySQL, Now: mysqlNow, Bind: positional, Answered: mysqlAnswered,
	Classify: func(err error) Failure { return mysqlFailures[MySQLNumber(err)] },
}

// mysqlNow is the database's clock when the statement began, in UTC: an hour of local time
// repeats when summer ends. See postgresNow.
const mysqlNow = `(TIMESTAMPDIFF(MICROSECOND, TIMESTAMP'1970-01-01 00:00:00', UTC_TIMESTAMP(3)) DIV 1000)`

// MySQLAllRows makes a query return all its rows, whatever sql_select_limit is for the
// connection. A lock that is missing in the result would count as lost.
const MySQLAllRows = ` LIMIT 9223372036854775807`

// MySQLLimitIdle makes the server end the connection of a process that sends nothing for
// two seconds in the middle of a transaction. MariaDB reads the first comment, MySQL the
// second. It also makes the next transaction READ COMMITTED: otherwise transactions lock the
// gaps between rows, and inserts into them deadlock. MySQLUnlimitIdle ends the limit.
const (
	MySQLLimitIdle = `SET /*M! @dlock_idle = @@idle_transaction_timeout, SESSION idle_transaction_timeout = 2,
	@dlock_idle_write = @@idle_write_transaction_timeout, SESSION idle_write_transaction_timeout = 2,
	@dlock_idle_readonly = @@idle_readonly_transaction_timeout, SESSION idle_readonly_transaction_timeout = 2,
	@@tx_isolation = 'READ-COMMITTED' */
/*!80000 @dlock_idle = @@wait_timeout, SESSION wait_timeout = 2, @@transaction_isolation = 'READ-COMMITTED' */`
	MySQLUnlimitIdle = `SET /*M! SESSION idle_transaction_timeout = @dlock_idle,
	SESSION idle_write_transaction_timeout = @dlock_idle_write,
	SESSION idle_readonly_transaction_timeout = @dlock_idle_readonly */
/*!80000 SESSION wait_timeout = @dlock_idle */`
)

// MySQLWritable is the condition that the server can be written to. The variable read_only
// is a number or a word, depending on the version.
const MySQLWritable = `(CONCAT(@@global.read_only) IN ('0', 'OFF') AND NOT @@global.innodb_read_only)`

// CheckMySQL returns an error if the server cannot be written to, or the settings of its
// connections cannot be used. With completion_type CHAIN every COMMIT begins a transaction, and
// nothing would commit what is written after it.
func CheckMySQL(ctx context.Context, on Queryer) error {
	var writable, autocommit bool
	var completion string
	var database sql.NullString
	err := on.QueryRowContext(ctx, `SELECT `+MySQLWritable+`, @@autocommit, @@completion_type, DATABASE()`).
		Scan(&writable, &autocommit, &completion, &database)
	const uncommitted = ", so that a lock would be granted and never committed; leave it %s for the connections of the store"
	switch {
	case err != nil:
		return err
	case !writable:
		return fmt.Errorf("%w (read_only or innodb_read_only is ON), as a replica is; connect to the primary server", ErrReadOnly)
	case !autocommit:
		return fmt.Errorf("%w: autocommit is off"+uncommitted, driver.ErrMisconfigured, "on")
	case completion == "CHAIN":
		return fmt.Errorf("%w: completion_type is CHAIN"+uncommitted, driver.ErrMisconfigured, "NO_CHAIN")
	case completion == "RELEASE":
		return fmt.Errorf("%w: completion_type is RELEASE, so that each transaction would end its connection; leave it NO_CHAIN for the connections of the store", driver.ErrMisconfigured)
	case database.String == "":
		return fmt.Errorf("%w: no database is selected", driver.ErrMisconfigured)
	}
	return nil
}

// mysqlFailures is keyed by the server's error numbers.
var mysqlFailures = map[uint16]Failure{
	1213: {Retry: true, Meaning: "deadlock with another transaction"},
	1205: {Retry: true, Meaning: "another transaction keeps a row locked"},
	1020: {Retry: true, Meaning: "another transaction has changed the row"},
	4031: {Retry: true, Ended: true, Meaning: "the server has ended the connection because it was idle"},
	1264: {Number: true, Kind: driver.ErrMisconfigured},
	1690: {Number: true, Kind: driver.ErrMisconfigured},
	1290: {Meaning: mysqlReadOnly},
	1792: {Meaning: mysqlReadOnly},
	1836: {Meaning: mysqlReadOnly},
	1146: {Missing: true, Meaning: "a table is missing: let the store create it, or run the statements that sqllock.Schema returns"},
	1054: {Missing: true, Meaning: "a table is not as expected: compare it with what sqllock.Schema returns", Kind: driver.ErrMisconfigured},
	1044: {Meaning: mysqlDenied, Kind: driver.ErrDenied},
	1142: {Meaning: mysqlDenied, Kind: driver.ErrDenied},
	1143: {Meaning: mysqlDenied, Kind: driver.ErrDenied},
	1045: {Meaning: "wrong user or password", Kind: driver.ErrDenied},
	1130: {Meaning: "the server does not let this host in", Kind: driver.ErrDenied},
	1698: {Meaning: "wrong user or password", Kind: driver.ErrDenied},
	1046: {Meaning: "no database is selected", Kind: driver.ErrMisconfigured},
	1193: {Meaning: "the server knows no such parameter", Kind: driver.ErrMisconfigured},
	1049: {Meaning: "there is no such database", Kind: driver.ErrMisconfigured},
	1021: {Meaning: "the disk is full", Kind: driver.ErrMisconfigured},
	1114: {Meaning: "the disk is full, or the table as large as it may be", Kind: driver.ErrMisconfigured},
	1665: {Meaning: "binlog_format is STATEMENT: set it to ROW or MIXED", Kind: driver.ErrMisconfigured},
}

const (
	mysqlReadOnly = "the server is read-only: it may be a replica"
	mysqlDenied   = "the user lacks a right: it needs SELECT, INSERT, UPDATE and DELETE on the tables, which can be created by hand with what sqllock.Schema returns"
)

// mysqlAnswered excludes the numbers of the client, with which proxies report that they lost
// the server.
func mysqlAnswered(err error) bool {
	n := MySQLNumber(err)
	return n != 0 && (n < 2000 || n > 2999)
}

// MySQLNumber returns the server's error number, zero for an error without one. The driver has it
// in a field of a type that this module must not import: hence reflection.
func MySQLNumber(err error) (number uint16) {
	if value := reflect.Indirect(reflect.ValueOf(err)); value.Kind() == reflect.Struct {
		if field := value.FieldByName("Number"); field.Kind() == reflect.Uint16 && field.Uint() != 0 {
			return uint16(field.Uint())
		}
	}
	switch wrapper := err.(type) { //nolint:errorlint // it visits each wrapped error
	case interface{ Unwrap() error }:
		return MySQLNumber(wrapper.Unwrap())
	case joinedError:
		for _, inner := range wrapper.Unwrap() {
			number = cmp.Or(number, MySQLNumber(inner))
		}
	}
	return number
}

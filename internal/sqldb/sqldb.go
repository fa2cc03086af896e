// Package sqldb is what the stores in SQL databases share.
package sqldb

import (
	"cmp"
	"context"
	"crypto/tls"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/deadline"
)

// Dialect is a kind of database. A new one needs an entry in dialectNames, in FactsOf, in sqlurl.parse
// and sqlurl.imports, in sqllock's dialects and statement.ofDialect, and in sqlsession's dialects.
type Dialect int

// The dialects. The zero value is not a dialect.
const (
	SQLite Dialect = iota + 1
	MySQL
	Postgres
)

var dialectNames = [...]string{SQLite: "sqlite", MySQL: "mysql", Postgres: "postgres"}

// String returns the kind of store that Traits report.
func (d Dialect) String() string {
	if d <= 0 || int(d) >= len(dialectNames) {
		return fmt.Sprintf("dialect %d", int(d))
	}
	return dialectNames[d]
}

// Schemes are the names of a store's schemes.
type Schemes []string

// Name returns the name of a scheme.
func (s Schemes) Name(scheme int) string {
	if scheme < 0 || scheme >= len(s) {
		return fmt.Sprintf("scheme %d", scheme)
	}
	return s[scheme]
}

// Parse returns the scheme of that name.
func (s Schemes) Parse(name string) (scheme int, err error) {
	if scheme = slices.Index(s, name); scheme < 0 {
		return 0, fmt.Errorf("unknown scheme %q (want %s)", name, strings.Join(s, " or "))
	}
	return scheme, nil
}

// Check returns an error unless the scheme has a name.
func (s Schemes) Check(scheme int) error {
	if scheme < 0 || scheme >= len(s) {
		return fmt.Errorf("unknown scheme %d (want %s)", scheme, strings.Join(s, " or "))
	}
	return nil
}

// Facts are what every store has to know about a dialect.
type Facts struct {
	Dialect
	Now      string                  // the expression for the database's clock, in milliseconds
	Bind     func(text string) Query // brings the parameters ?1 to ?9 into the form of the dialect
	Classify func(error) Failure

	// Answered reports whether an error is the server's own answer, which means that the
	// server does not carry out the statement later. It is nil where no server exists.
	Answered func(error) bool
}

// FactsOf returns the facts about a dialect.
func FactsOf(d Dialect) (*Facts, error) {
	facts := map[Dialect]*Facts{SQLite: &sqliteFacts, MySQL: &mysqlFacts, Postgres: &postgresFacts}[d]
	switch {
	case d == 0:
		return nil, errors.New("option Dialect is not set")
	case facts == nil:
		return nil, fmt.Errorf("unknown dialect %d", int(d))
	}
	return facts, nil
}

// Configure returns what belongs to the options of a store.
func Configure(d Dialect, tablePrefix string) (*Facts, *Tables, error) {
	facts, err := FactsOf(d)
	if err != nil {
		return nil, nil, err
	}
	tables, err := NewTables(tablePrefix)
	return facts, tables, err
}

// ErrReadOnly says that the server accepts no writes, so that it cannot keep locks.
var ErrReadOnly = fmt.Errorf("%w: the server is read-only", driver.ErrMisconfigured)

// Failure is what an error of the database means to a store.
type Failure struct {
	Retry   bool   // another attempt may succeed; unless Ended, the failed one changed nothing
	Ended   bool   // with Retry: the server has ended the connection, and may have committed before
	Missing bool   // a table is missing, or is not as expected
	Access  bool   // a file cannot be read or written
	Number  bool   // a token is missing, or too large to rise
	Meaning string // for people, where the driver's text says too little; may be empty
	Kind    error  // of the contract; nil is driver.ErrUnreachable

	NoAnswer string // why there may have been no answer; empty if it is the database's fault
}

// PoolInUse says that a pool has no free connection. It returns "" if it has one. calls is how many calls
// of the store have one or wait for one.
func PoolInUse(pool sql.DBStats, calls int) string {
	switch {
	case pool.MaxOpenConnections == 0 || pool.InUse < pool.MaxOpenConnections:
		return ""
	case pool.InUse <= calls:
		return fmt.Sprintf("the database gave no answer, or the pool has no free connection: %d of %d are in use", pool.InUse, pool.MaxOpenConnections)
	}
	return fmt.Sprintf("the program's pool has no free connection: %d of %d are in use", pool.InUse, pool.MaxOpenConnections)
}

// Describe turns the error of a statement into one of the contract.
func (f Failure) Describe(ctx context.Context, op string, err error) error {
	kind, meaning := cmp.Or(f.Kind, driver.ErrUnreachable), f.Meaning
	if cause := deadline.Passed(ctx); cause != nil && f.Kind == nil {
		switch {
		case f.Retry && meaning != "": // the time went by with attempts
		case errors.Is(ctx.Err(), context.Canceled), errors.Is(cause, driver.ErrUnreachable) && f.NoAnswer == "":
			return fmt.Errorf("%s: %w", op, cause)
		default:
			meaning = cmp.Or(f.NoAnswer, "the database gave no answer")
		}
		err = cause
	}
	err = oneLine(err)
	if f.Kind == nil && isTLSError(err) {
		kind = driver.ErrMisconfigured
	}
	if meaning != "" {
		op += ": " + meaning
	}
	return fmt.Errorf("%w: %s: %w", kind, op, err)
}

// isTLSError reports whether the server and this program do not agree about TLS.
func isTLSError(err error) bool {
	return err != nil && (strings.Contains(err.Error(), "TLS requested but server does not support TLS") || // of go-sql-driver/mysql
		strings.Contains(err.Error(), "server refused TLS connection") || // of pgx
		errors.As(err, new(*tls.CertificateVerificationError)) || errors.As(err, new(tls.RecordHeaderError)) || errors.As(err, new(tls.AlertError)))
}

// oneLine joins the lines of an error. pgx lists how each attempt to connect failed, with
// TLS first. If another attempt failed too, oneLine leaves out that TLS was refused.
func oneLine(err error) error {
	if err == nil || !strings.Contains(err.Error(), "\n") {
		return err
	}
	lines := []error{err}
	if several, ok := errors.AsType[joinedError](err); ok {
		lines = several.Unwrap()
	}
	var all []string
	for _, line := range lines {
		if text := strings.Join(strings.Fields(line.Error()), " "); !slices.Contains(all, text) {
			all = append(all, text)
		}
	}
	isRefusal := func(text string) bool { return strings.Contains(text, "server refused TLS connection") }
	if telling := slices.DeleteFunc(slices.Clone(all), isRefusal); len(telling) > 0 {
		all = telling
	}
	return &plainError{strings.Join(all, "; "), err}
}

type joinedError interface {
	error
	Unwrap() []error
}

// plainError is an error in other words.
type plainError struct {
	text string
	err  error
}

func (e *plainError) Error() string { return e.text }
func (e *plainError) Unwrap() error { return e.err }

package sqlurl

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/deadline"
	"github.com/dlock-go/dlock/internal/sqldb"
)

// imports are the packages that register the drivers.
var imports = map[string]string{
	"sqlite": "modernc.org/sqlite",
	"mysql":  "github.com/go-sql-driver/mysql",
	"pgx":    "github.com/jackc/pgx/v5/stdlib",
}

const (
	// firstAnswerLimit is how long a server may take for its first answer.
	firstAnswerLimit = 5 * time.Second
	// idleLimit closes connections that are not needed.
	idleLimit = time.Minute
)

// Open opens a pool of at most maxConns connections; zero is no limit. It fails if a server
// does not answer. It leaves every other failure to the store, which explains it.
func (u *URL) Open(ctx context.Context, maxConns int) (*sql.DB, error) {
	if !slices.Contains(sql.Drivers(), u.Driver) {
		return nil, fmt.Errorf("the database/sql driver %q is not registered: import _ %q", u.Driver, imports[u.Driver])
	}
	db, err := sql.Open(u.Driver, u.DSN)
	if err != nil {
		return nil, fmt.Errorf("%w: the parameters: %w", ErrURL, err)
	}
	if u.Dialect == sqldb.SQLite {
		return db, nil
	}
	db.SetMaxOpenConns(maxConns)
	db.SetMaxIdleConns(max(maxConns, 4))
	db.SetConnMaxIdleTime(idleLimit)
	if err := u.firstAnswer(ctx, db); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}

func (u *URL) firstAnswer(ctx context.Context, db *sql.DB) error {
	ctx, cancel := context.WithTimeoutCause(ctx, firstAnswerLimit, fmt.Errorf("%w: no answer within %v", driver.ErrUnreachable, firstAnswerLimit))
	defer cancel()
	err := db.PingContext(ctx)
	switch cause := deadline.Passed(ctx); {
	case err == nil:
		return nil
	case isParseError(err):
		return fmt.Errorf("%w: %w", ErrURL, err)
	case cause == nil, errors.Is(cause, driver.ErrUnreachable):
		return cause
	}
	return sqldb.Failure{}.Describe(ctx, "open", err)
}

// isParseError reports whether pgx, which reads the DSN when it connects, could not. The
// error of pgx hides the password.
func isParseError(err error) bool {
	for ; err != nil; err = errors.Unwrap(err) {
		if reflect.TypeOf(err).String() == "*pgconn.ParseConfigError" {
			return true
		}
	}
	return false
}

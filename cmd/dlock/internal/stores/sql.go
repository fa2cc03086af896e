package stores

import (
	"context"
	"errors"
	"fmt"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/sqldb/sqlurl"
	"github.com/dlock-go/dlock/sqllock"
	"github.com/dlock-go/dlock/sqlsession"
)

// forUpdateConns are the connections of scheme forupdate: one for the lock, and some that wait.
const forUpdateConns = 8

// openSQL opens mysql://user:password@host:port/database and the like, with the package that has the scheme.
func openSQL(ctx context.Context, raw string) (driver.Store, error) {
	ctx, cancel := untilNoAnswer(ctx, openLimit) // opening takes many round trips
	defer cancel()
	u, err := sqlurl.Parse(raw)
	if err != nil {
		return nil, err
	}
	var store driver.Store
	switch u.Scheme {
	case sqlsession.Session.String():
		store, err = sqlsession.Open(ctx, raw, nil)
	case sqlsession.ForUpdate.String():
		store, err = sqlsession.Open(ctx, raw, &sqlsession.Options{MaxConns: forUpdateConns})
	default:
		store, err = sqllock.Open(ctx, raw, nil)
	}
	if errors.Is(err, sqlurl.ErrURL) { // a driver says so, and may quote the URL
		err = fmt.Errorf("%w: %s", sqlurl.ErrURL, NewRedactor(raw).Clean(err.Error()))
	}
	return store, err
}

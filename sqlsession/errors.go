package sqlsession

import (
	"context"
	"errors"
	"fmt"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/sqldb"
)

// explain turns an error of the database into one of the contract.
func (s *Store) explain(ctx context.Context, op string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, driver.ErrHeld), errors.Is(err, driver.ErrNotHeld), errors.Is(err, driver.ErrClosed), errors.Is(err, driver.ErrUnsupported):
		return err
	case errors.Is(err, driver.ErrMisconfigured):
		return fmt.Errorf("%s: %w", op, err)
	case errors.Is(err, errPoolInUse): // which says more than the end of the context
		ctx = context.Background()
	}
	return sqldb.Failure{Kind: s.facts.Classify(err).Kind}.Describe(ctx, op, err)
}

package sqllock

import (
	"context"

	"github.com/dlock-go/dlock/driver"
)

// Diagnose implements driver.Diagnoser.
func (s *Store) Diagnose(ctx context.Context) (findings []driver.Finding, err error) {
	err = s.perform(ctx, "diagnose", func() (err error) {
		findings, err = s.dialect.diagnose(ctx, s)
		return err
	})
	return findings, err
}

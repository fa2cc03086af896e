package sqllock

import (
	"context"

	"github.com/dlock-go/dlock/driver"
)

// Diagnose implements driver.Diagnoser.
func (s *Store) Diagnose(ctx context.Context) (findings []driver.Finding, err error) {
	err = s.perform(ctx, "diagnose", func() error {
		findings = nil
		for _, check := range s.dialect.checks {
			finding, err := check(ctx, s)
			if err != nil {
				return err
			}
			findings = append(findings, finding)
		}
		return nil
	})
	return findings, err
}

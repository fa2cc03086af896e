package drivertest

import "context"

// CheckImpatiently is Check for a store that is known to be broken: what is late counts as
// missing.
func CheckImpatiently(ctx context.Context, cfg Config) error {
	s, err := labelled(ctx, cfg)
	if err != nil {
		return err
	}
	s.impatient = true
	s.setTTL(s.ttl)
	return s.checkAll(ctx)
}

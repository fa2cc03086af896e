package drivertest

import "context"

// CheckImpatiently is Check for a store that is known to be broken: what is late has not
// happened.
func CheckImpatiently(ctx context.Context, cfg Config) error {
	t, err := labelled(ctx, cfg)
	if err != nil {
		return err
	}
	t.impatient = true
	t.setTTL(t.ttl)
	return t.checkAll(ctx)
}

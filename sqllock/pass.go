package sqllock

import (
	"context"

	"github.com/dlock-go/dlock/driver"
)

// Pass implements driver.Passer: one statement writes the new owner over the old one.
// The token that is replaced says what the new one is.
func (s *Store) Pass(ctx context.Context, grant driver.Grant, req driver.Request) (driver.Grant, error) {
	j := &job{name: grant.Name, owner: req.Owner}
	passed, err := s.changeJob(ctx, "pass", j, pass, grant.Name,
		grant.Owner.Hex(), int64(grant.Token), req.Owner.Hex(), millis(req.TTL), req.Holder.Encode())
	switch {
	case err != nil:
		return driver.Grant{}, err
	case !passed:
		return driver.Grant{}, driver.ErrNotHeld
	}
	s.attempts.Passed(grant)
	return granted(&req, grant.Token+1), nil
}

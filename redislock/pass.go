package redislock

import (
	"context"
	"fmt"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// Pass gives a lock to another owner, in one round trip and without waking anybody.
// Redisson's clients, and whoever else waits, hear of the release that ends a row of
// them.
func (s *Store) Pass(ctx context.Context, grant driver.Grant, req driver.Request) (driver.Grant, error) {
	if err := s.usable(ctx); err != nil {
		return driver.Grant{}, err
	}
	key, holder := s.keyOf(req.Name), s.holders.encode(req.Holder)
	sent := time.Now()
	reply, err := s.eval(ctx, s.scripts.pass, []string{key, s.counterOf(key)},
		markPrefix(grant.Owner, grant.Token), req.Floor, millis(req.TTL), req.Owner.Hex(), holder.text)
	if err == nil && reply == nil {
		return driver.Grant{}, fmt.Errorf("%w: %q", driver.ErrNotHeld, grant.Name)
	}
	token, err := s.tokenByClock(req.Name, reply, sent, err)
	if err != nil {
		s.unsettled(err, req)
		return driver.Grant{}, s.notGranted(ctx, &req, err)
	}
	s.doubts.clear(grant.Owner)
	s.attempts.Passed(grant)
	return driver.Grant{Name: req.Name, Owner: req.Owner, Token: token, TTL: req.TTL, Handle: handle{holder, false}}, nil
}

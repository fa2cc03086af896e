package redis

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/redis/go-redis/v9"
)

// mistake is a mistake that articles about locks in Redis make.
type mistake int

const (
	none               mistake = iota
	releasesAnybodys           // DEL without a check of the owner
	recreatesOnRenewal         // SET instead of PEXPIRE, which creates an expired lock again
	countsAlone                // every process counts its own tokens
)

func (m mistake) String() string {
	return [...]string{"none", "releases anybody's", "recreates on renewal", "counts alone"}[m]
}

// article is a store as articles describe it, with one mistake or none.
type article struct {
	client *redis.Client
	mistake
	counter atomic.Uint64
}

func openArticle(addr string, m mistake) driver.Store {
	return &article{client: redis.NewClient(&redis.Options{Addr: addr}), mistake: m}
}

var (
	articleAcquire = redis.NewScript(`
local holder = redis.call('get', KEYS[1])
if holder and holder ~= ARGV[1] then
	return 0
end
redis.call('set', KEYS[1], ARGV[1], 'PX', ARGV[2])
if holder then
	return tonumber(redis.call('get', KEYS[2]))
end
return redis.call('incr', KEYS[2])`)
	articleRenew   = redis.NewScript(`return redis.call('get', KEYS[1]) == ARGV[1] and redis.call('pexpire', KEYS[1], ARGV[2]) or 0`)
	articleRelease = redis.NewScript(`return redis.call('get', KEYS[1]) == ARGV[1] and redis.call('del', KEYS[1]) or 0`)
)

func (a *article) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	token, err := articleAcquire.Run(ctx, a.client, []string{req.Name, "tokens of " + req.Name}, req.Owner.Hex(), req.TTL.Milliseconds()).Uint64()
	switch {
	case err != nil:
		return driver.Grant{}, fmt.Errorf("%w: %w", driver.ErrUnreachable, err)
	case token == 0:
		return driver.Grant{}, &driver.HeldError{Name: req.Name}
	case a.mistake == countsAlone:
		token = a.counter.Add(1)
	}
	return driver.Grant{Name: req.Name, Owner: req.Owner, Token: token, TTL: req.TTL}, nil
}

func (a *article) Renew(ctx context.Context, grants []driver.Grant) []error {
	errs := make([]error, len(grants))
	for i, grant := range grants {
		if a.mistake == recreatesOnRenewal {
			errs[i] = a.client.Set(ctx, grant.Name, grant.Owner.Hex(), grant.TTL).Err()
			continue
		}
		n, err := articleRenew.Run(ctx, a.client, []string{grant.Name}, grant.Owner.Hex(), grant.TTL.Milliseconds()).Int()
		errs[i] = outcome(n, err)
	}
	return errs
}

func (a *article) Release(ctx context.Context, grant driver.Grant) error {
	if a.mistake == releasesAnybodys {
		return outcomeOf(a.client.Del(ctx, grant.Name))
	}
	n, err := articleRelease.Run(ctx, a.client, []string{grant.Name}, grant.Owner.Hex()).Int()
	return outcome(n, err)
}

func outcomeOf(cmd *redis.IntCmd) error {
	n, err := cmd.Result()
	return outcome(int(n), err)
}

func outcome(n int, err error) error {
	switch {
	case err != nil:
		return fmt.Errorf("%w: %w", driver.ErrUnreachable, err)
	case n == 0:
		return driver.ErrNotHeld
	}
	return nil
}

func (a *article) Traits() driver.Traits {
	return driver.Traits{Store: "article", Fencing: driver.FencingStrong, MinTTL: time.Millisecond}
}

func (a *article) Close() error { return a.client.Close() }

package redislock

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// maxToken is the largest number that a script can count to.
const maxToken = 1 << 53

// checkFloor rejects a token after which a script could not draw another one.
func checkFloor(floor uint64) error {
	if floor >= maxToken-1 {
		return fmt.Errorf("token %d is too large (want less than %d)", floor, uint64(maxToken-1))
	}
	return nil
}

func parseToken(text string) (uint64, error) {
	token, err := strconv.ParseUint(text, 10, 64)
	if err != nil || token == 0 {
		return 0, fmt.Errorf("%w: %q is not a token", errReply, text)
	}
	return token, nil
}

// spanOf returns how many tokens a request gets.
func spanOf(req *driver.Request) uint64 {
	if req.Fair {
		return 1
	}
	return max(1, req.Span)
}

// lastToken returns the token that the server keeps for a grant.
func lastToken(grant driver.Grant) uint64 { return grant.Token + max(1, grant.Span) - 1 }

// RaiseToken implements driver.TokenRaiser.
func (s *Store) RaiseToken(ctx context.Context, grant driver.Grant, token uint64) (driver.Grant, error) {
	if err := s.usable(ctx); err != nil {
		return driver.Grant{}, err
	}
	if err := checkFloor(token); err != nil {
		return driver.Grant{}, err
	}
	key := s.keyOf(grant.Name)
	reply, err := s.acked.eval(ctx, s.scripts.raise, []string{key, s.counterOf(key)},
		ownerPrefix(grant.Owner), grant.Owner.Hex(), token)
	if err != nil {
		return driver.Grant{}, err
	}
	text, held := reply.(string)
	if !held {
		return driver.Grant{}, fmt.Errorf("%w: %q", driver.ErrNotHeld, grant.Name)
	}
	grant.Token, err = parseToken(text)
	grant.Span = 1
	return grant, err
}

// unconfirmedTokens are proposed tokens that the caller must not get: the counter was ahead of them,
// or the reply that tells was lost. If the owner asks again, it gets a new token.
type unconfirmedTokens struct {
	any atomic.Bool // the map is not empty, which is rare

	mu     sync.Mutex
	tokens map[driver.Owner]unconfirmedToken
}

type unconfirmedToken struct {
	token uint64
	until time.Time // when the lock has expired, unless it is renewed
}

// add records that the owner may hold a lock with a proposed token.
func (u *unconfirmedTokens) add(owner driver.Owner, token uint64, ttl time.Duration) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.tokens == nil {
		u.tokens = make(map[driver.Owner]unconfirmedToken)
	}
	if len(u.tokens)%1024 == 1023 { // forget owners that never asked again
		maps.DeleteFunc(u.tokens, func(_ driver.Owner, t unconfirmedToken) bool { return time.Now().After(t.until) })
	}
	if _, known := u.tokens[owner]; !known { // only the first attempt proposes a token
		u.tokens[owner] = unconfirmedToken{token, time.Now().Add(2 * ttl)}
	}
	u.any.Store(true)
}

// of returns the owner's unconfirmed token, or zero.
func (u *unconfirmedTokens) of(owner driver.Owner) uint64 {
	if !u.any.Load() {
		return 0
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.tokens[owner].token
}

// remove forgets an owner that holds a confirmed token, or no lock.
func (u *unconfirmedTokens) remove(owner driver.Owner) {
	if !u.any.Load() {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.tokens, owner)
	u.any.Store(len(u.tokens) > 0)
}

// serverClock estimates the server's clock from its last reading. The estimate is never ahead of
// the clock, and behind it by no more than the reading took. It is a lower bound for the next
// token, in case that the counter beside the lock is lost or set back.
type serverClock struct{ last atomic.Pointer[reading] }

type reading struct {
	micros int64
	at     time.Time
}

const (
	maxReadingAge  = 10 * time.Second       // two clocks drift apart by less than a millisecond in it
	maxReadingTime = 100 * time.Millisecond // how long the call of a reading may take
)

// read takes a reading from the reply to a call that was sent at that time.
func (c *serverClock) read(reply any, sent time.Time) {
	text, _ := reply.(string)
	micros, err := strconv.ParseInt(text, 10, 64)
	now := time.Now()
	if err == nil && now.Sub(sent) <= maxReadingTime {
		c.last.Store(&reading{micros, now})
	}
}

// now returns the estimate in microseconds, or zero without a usable reading.
func (c *serverClock) now() int64 {
	r := c.last.Load()
	if r == nil {
		return 0
	}
	now := time.Now()
	age := now.Sub(r.at)
	// While the machine is suspended, the monotonic clock stops and the wall clock does not.
	suspended := now.Round(0).Sub(r.at.Round(0)) - age
	if age > maxReadingAge || suspended.Abs() > time.Second {
		return 0
	}
	return r.micros + age.Microseconds()
}

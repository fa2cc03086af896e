package redis

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/redislock/redlock"
	"github.com/dlock-go/dlock/test/harness/servers"
	"github.com/redis/go-redis/v9"
)

// TestRedlockTokensStayNearTheClocks: goroutines that hand a lock over do not make its tokens run
// ahead of the servers' clocks. A server that forgets its counter takes the next token from its
// clock.
func TestRedlockTokensStayNearTheClocks(t *testing.T) {
	group := servers.RunGroup(t, 3, servers.Redis, inMemory...)
	_, one := openURL(t, "redlock://"+strings.Join(group.Addrs(), ","))
	_, two := openURL(t, "redlock://"+strings.Join(group.Addrs(), ","))
	for what, processes := range map[string][]*dlock.Client{"one process": {one}, "two processes": {one, two}} {
		last := crowd(t, what, 8, []time.Duration{time.Minute}, processes...)
		if ahead := time.Until(time.UnixMicro(int64(last))); ahead > 20*time.Millisecond {
			t.Errorf("%s: the last token is %v ahead of the clock", what, ahead)
		}
	}
}

// TestRedlockAgreesOnTokens: members whose counters are ahead of the clock, by less and by more than a
// grant's tokens, agree on the tokens of a grant, show one of them, and keep the lock through a renewal.
func TestRedlockAgreesOnTokens(t *testing.T) {
	t.Parallel()
	group := servers.RunGroup(t, 3, servers.Redis, inMemory...)
	raw := clients(t, group.Addrs()...)
	s := openRedlock(t, group.Addrs()...)
	step, last := s.Traits().TokenStep, uint64(0)
	for round := range 12 {
		ahead := []time.Duration{0, 30 * time.Microsecond, time.Second, time.Minute, 0, 0}[round%6]
		if ahead > 0 {
			setCounter(t, raw[round%3], "plain", "x", max(last, uint64(time.Now().UnixMicro()))+uint64(ahead.Microseconds()))
		}
		req := inMode(driver.Mode{}, "x")
		grant := mustAcquire(t, s, req)
		if grant.Token <= last {
			t.Errorf("round %d: token %d after %d", round, grant.Token, last)
		}
		last = grant.Token + step - 1
		eventually(t, "all members have the token, for the TTL, and have set all tokens aside", func() bool {
			return !slices.ContainsFunc(raw, func(server *redis.Client) bool { return !hasTokens(t, server, "x", last) })
		})
		if again := mustAcquire(t, s, req); again.Token != grant.Token {
			t.Errorf("round %d: token %d, and then %d", round, grant.Token, again.Token)
		}
		if errs := s.Renew(t.Context(), []driver.Grant{grant}); errs != nil {
			t.Errorf("round %d: Renew: %v", round, errs)
		}
		shown := wantShown(t, s, grant)
		var want error
		if round%2 == 0 {
			want = driver.ErrNotHeld
			if err := s.Break(t.Context(), "x", shown); err != nil {
				t.Errorf("round %d: Break: %v", round, err)
			}
		}
		if err := s.Release(t.Context(), grant); !errors.Is(err, want) {
			t.Errorf("round %d: Release: %v; want %v", round, err, want)
		}
		eventually(t, "all members are free", func() bool {
			return !slices.ContainsFunc(raw, func(server *redis.Client) bool { return server.Exists(t.Context(), "x").Val() != 0 })
		})
	}
}

// hasTokens reports whether a member has the lock with that last token, for half of a minute at least, and its
// counter is not behind it.
func hasTokens(t *testing.T, raw *redis.Client, name string, last uint64) bool {
	_, rest, _ := strings.Cut(raw.Get(t.Context(), name).Val(), ":")
	counter := raw.ZScore(t.Context(), "dlock:token:{"+name+"}", "t").Val()
	return strings.HasPrefix(rest, fmt.Sprint(last)+":") && raw.PTTL(t.Context(), name).Val() > 30*time.Second && uint64(counter) >= last
}

// TestRaiseScript runs the script that gives a lock another token.
func TestRaiseScript(t *testing.T) {
	t.Parallel()
	_, raw := run(t)
	var source strings.Builder
	for _, file := range []string{"common", "plain", "plain_raise"} {
		text, err := os.ReadFile("../../../redislock/lua/" + file + ".lua")
		must(t, err)
		source.WriteString(strings.ReplaceAll(string(text), "TOKEN_STEP", "256"))
	}
	const counter = "dlock:token:{x}"
	owner, other := driver.NewOwner().Hex(), driver.NewOwner().Hex()
	for name, c := range map[string]struct {
		owner    string
		from, to int64 // in the call
		has      int64 // the token of the lock after it; zero if the owner has nothing
	}{
		"raise":                     {owner, 1023, 2047, 2047},
		"raise above the counter":   {owner, 1023, 9215, 9215},
		"a call that was repeated":  {owner, 511, 1023, 1023},
		"a call that was overtaken": {owner, 511, 767, 1023},
		"lower":                     {owner, 1023, 767, 767},
		"another owner":             {other, 1023, 2047, 0},
	} {
		raw.Set(t.Context(), "x", owner+":1023:{}", time.Minute)
		raw.Del(t.Context(), counter)
		raw.ZAdd(t.Context(), counter, redis.Z{Score: 1535, Member: "t"})
		got, err := raw.Eval(t.Context(), source.String(), []string{"x", counter}, c.owner+":", c.owner, c.to, c.from).Result()
		if err != nil && !errors.Is(err, redis.Nil) {
			t.Fatal(err)
		}
		want, value := any(fmt.Sprint(c.has)), fmt.Sprintf("%s:%d:{}", owner, c.has)
		if c.has == 0 {
			want, value = nil, owner+":1023:{}"
		}
		if now := raw.Get(t.Context(), "x").Val(); got != want || now != value {
			t.Errorf("%s: the reply is %v, and the lock %q; want %v and %q", name, got, now, want, value)
		}
		if n := int64(raw.ZScore(t.Context(), counter, "t").Val()); n < c.has || n < 1535 {
			t.Errorf("%s: the counter is %d; the tokens up to %d were given out", name, n, max(c.has, 1535))
		}
		if left := raw.PTTL(t.Context(), "x").Val(); left <= 0 || left > time.Minute {
			t.Errorf("%s: the lock expires in %v; want what was left of a minute", name, left)
		}
	}
}

// wantShown returns the token by which a refusal and Find show a grant.
func wantShown(t *testing.T, s *redlock.Store, grant driver.Grant) uint64 {
	t.Helper()
	_, err := s.Acquire(t.Context(), inMode(driver.Mode{}, grant.Name))
	held, ok := errors.AsType[*driver.HeldError](err)
	if !ok || held.Token < grant.Token || held.Token >= grant.Token+s.Traits().TokenStep {
		t.Fatalf("the tokens begin with %d: refused with %v, %v", grant.Token, held, err)
	}
	info, found, err := s.Find(t.Context(), grant.Name)
	if !found || err != nil || info.Token != held.Token {
		t.Errorf("Find shows %d, %v, %v; the refusal %d", info.Token, found, err, held.Token)
	}
	return held.Token
}

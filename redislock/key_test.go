package redislock

import (
	"strconv"
	"strings"
	"testing"

	"github.com/dlock-go/dlock/driver"
)

func TestKeyIsTheName(t *testing.T) {
	for _, name := range []string{"a", "orders/42", "a b", "{tag}a", "a{tag}b", "{a}{b}", "锁", "redisson", "dlock"} {
		for _, s := range []*Store{{}, withSlots(Redisson)} {
			if key := s.keyOf(name); key != name {
				t.Errorf("the key of %q is %q, which other programs do not use (cluster: %v)", name, key, s.clustered.Load())
			}
		}
	}
}

func TestEscapedNamesAreDistinct(t *testing.T) {
	inCluster := map[string]bool{ // the value: whether it is escaped on one server too
		"a}b": false, "a{b": false, "a{}b": false, "}{": false, "a{}{b}": false, "100%}": false,
		"{a}": true, "{a}b}": true, "{redisson}": true,
		"redisson_lock_token:{a}": true, "redisson_lock_queue:{a}": true, "redisson_lock_timeout:{a}": true,
		"redisson_unlock_latch:{a}:0": true, "dlock:token:{a}": true, "dlock:name:a%7Db": true,
	}
	seen := map[string]string{}
	for name, always := range inCluster {
		if key := (&Store{}).keyOf(name); (key != name) != always {
			t.Errorf("the key of %q on one server is %q", name, key)
		}
		key := withSlots(Redisson).keyOf(name)
		if key == name {
			t.Errorf("%q is not escaped in a cluster", name)
		}
		if back := nameOf(key); back != name {
			t.Errorf("%q comes back from its key %q as %q", name, key, back)
		}
		if other, twice := seen[key]; twice {
			t.Errorf("%q and %q have the same key %q", name, other, key)
		}
		seen[key] = name
	}
}

// FuzzNamesShareNothing: two locks share no key and no channel.
func FuzzNamesShareNothing(f *testing.F) {
	for _, pair := range [][2]string{
		{"a", "{a}"}, {"a}b", "{a}b}"}, {"{a}", "{{a}}"}, {"dlock:x", "{dlock:x}"}, {"dlock:x", "{dlock:name:dlock:x}"},
		{"{a}", "{dlock:name:%7Ba%7D}"}, {"}", "{}}"}, {"{a}", "{%7Ba%7D}"}, {"a", "redisson_lock_token:{a}"}, {"%", "%25"},
	} {
		f.Add(pair[0], pair[1])
	}
	f.Fuzz(func(t *testing.T, one, other string) {
		if one == other || driver.CheckName(one) != nil || driver.CheckName(other) != nil {
			return
		}
		for _, s := range []*Store{{}, withSlots(Redisson), {protocol: Plain}, withSlots(Plain)} {
			used := make(map[string]bool)
			for _, key := range keysOf(s, one) {
				used[key] = true
			}
			for _, key := range keysOf(s, other) {
				if used[key] {
					t.Errorf("%q and %q share %q (%v, cluster: %v)", one, other, key, s.protocol, s.clustered.Load())
				}
			}
		}
	})
}

// keysOf returns the lock's key and everything named after it. Channels are not keys.
func keysOf(s *Store, name string) []string {
	key := s.keyOf(name)
	return append(s.queueOf(key), key, s.counterOf(key), "channel "+s.channelOf(key))
}

// FuzzKeysOfALockShareASlot: a cluster demands that.
func FuzzKeysOfALockShareASlot(f *testing.F) {
	for _, name := range []string{"a", "{", "}", "{}", "a{b}c", "{a", "a}", "{}{a}", "}{a}", "dlock:", "redisson_lock_token:", "%"} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if name == "" || len(name) > 255 || strings.ContainsRune(name, 0) {
			return
		}
		s := withSlots(Redisson)
		key := s.keyOf(name)
		if back := nameOf(key); back != name {
			t.Errorf("%q comes back as %q", name, back)
		}
		for _, other := range append(s.queueOf(key), s.counterOf(key), s.channelOf(key), s.channelOf(key)+":0123") {
			if hashTag(other) != hashTag(key) {
				t.Errorf("name %q: the key %q is hashed by %q, but %q by %q", name, key, hashTag(key), other, hashTag(other))
			}
		}
	})
}

// withSlots returns a store whose servers keep keys in slots.
func withSlots(p Protocol) *Store {
	s := &Store{protocol: p}
	s.clustered.Store(true)
	return s
}

func TestParseHolderValue(t *testing.T) {
	owner := driver.NewOwner()
	holder := driver.Holder{Host: "web-1", PID: 7, Program: "billing", Note: `a:b"{}`}
	redisson, plain := &Store{protocol: Redisson, step: tokenStep}, &Store{protocol: Plain, step: tokenStep}
	value := redisson.prefixOf(driver.Grant{Owner: owner, Token: 1794800000000001}) + holder.Encode()
	for _, s := range []*Store{redisson, plain} {
		if token, h := s.parseHolderValue(value); token != 1794800000000001 || h != holder {
			t.Errorf("%v: %q is read as token %d of %+v", s.protocol, value, token, h)
		}
	}
	for _, foreign := range []string{
		"", "x", "8743c9c0-612d-420f-9b28-14d22a1b56c7:1", "0123456789abcdef0123456789abcdef",
		"0123456789abcdef0123456789abcdef:12:no", "b64secret==",
	} {
		if token, h := redisson.parseHolderValue(foreign); token != 0 || h.Note != foreign {
			t.Errorf("%q, which dlock did not write, is read as token %d of %+v", foreign, token, h)
		}
		if token, h := plain.parseHolderValue(foreign); token != 0 || h != (driver.Holder{}) {
			t.Errorf("the secret %q of another program is shown: token %d of %+v", foreign, token, h)
		}
	}
}

// TestDrawnTokensAreNotProposedAgain: of a name that was locked a moment ago, a proposal comes after its last
// token, also if that is ahead of the clock.
func TestDrawnTokensAreNotProposedAgain(t *testing.T) {
	d := drawnTokens{step: tokenStep}
	first := func(key string, floor uint64) uint64 { return d.propose(key, floor) - tokenStep + 1 }
	if got := first("a", 10*tokenStep); got != 10*tokenStep {
		t.Errorf("the first token is %d; want that of the clock, %d", got, 10*tokenStep)
	}
	d.note("a", 11*tokenStep-1)
	if got := first("a", 10*tokenStep+1); got != 11*tokenStep {
		t.Errorf("the next token is %d; want %d", got, 11*tokenStep)
	}
	if got := first("a", 20*tokenStep-7); got != 20*tokenStep {
		t.Errorf("a later token is %d; want the first multiple of the step by the clock, %d", got, 20*tokenStep)
	}
	if got := first("b", 10*tokenStep); got != 10*tokenStep {
		t.Errorf("the token of another name is %d; want %d", got, 10*tokenStep)
	}
	for i := range 2 * maxDrawnTokens {
		d.note(strconv.Itoa(i), 1)
	}
	if n := len(d.last); n > maxDrawnTokens {
		t.Errorf("%d tokens are kept; want %d at most", n, maxDrawnTokens)
	}
}

package etcdlock

import (
	"strings"
	"testing"

	"github.com/dlock-go/dlock/driver"
	clientv3 "go.etcd.io/etcd/client/v3"
)

func TestKeyContainsTheEscapedName(t *testing.T) {
	s := &Store{prefix: "shop/", keys: make(map[string]*hold)}
	l := &lease{id: 0x1f, strayKeys: make(map[string]struct{})}
	for name, want := range map[string]string{
		"orders":   "shop/orders/1f",
		"a/b":      "shop/a%2Fb/1f",
		"a%2Fb":    "shop/a%252Fb/1f",
		"%":        "shop/%25/1f",
		"a-1":      "shop/a-1/1f",
		"shop":     "shop/shop/1f",
		"../a\\ 锁": "shop/..%2Fa\\ 锁/1f",
	} {
		key := s.newKeyLocked(s.queuePrefix(name), driver.Mode{}, l)
		if key != want {
			t.Errorf("the key of %q is %q; want %q", name, key, want)
		}
		if got, ok := s.nameOf(key, int64(l.id)); !ok || got != name {
			t.Errorf("%q is the key of %q, %v; want %q", key, got, ok, name)
		}
	}
}

func TestKeyInUseGetsANumber(t *testing.T) {
	s := &Store{keys: make(map[string]*hold)}
	l := &lease{id: 0x1f, strayKeys: make(map[string]struct{})}
	s.keys["a/1f"] = &hold{}
	l.strayKeys["b/1f"] = struct{}{}
	seen := make(map[string]bool)
	for range 3 {
		for _, name := range []string{"a", "b"} {
			key := s.newKeyLocked(s.queuePrefix(name), driver.Mode{}, l)
			if !strings.HasPrefix(key, name+"/1f-") || seen[key] {
				t.Errorf("the key %q of %q is in use", key, name)
			}
			seen[key] = true
			if got, ok := s.nameOf(key, int64(l.id)); !ok || got != name {
				t.Errorf("%q is the key of %q, %v; want %q", key, got, ok, name)
			}
		}
	}
}

func TestKeyTellsTheMode(t *testing.T) {
	s := &Store{prefix: "p/", keys: make(map[string]*hold)}
	l := &lease{id: 0x1f, strayKeys: make(map[string]struct{})}
	prefix := s.queuePrefix("a~shared-1")
	for mode, want := range map[driver.Mode]string{
		{}:             prefix + "1f",
		{Shared: true}: prefix + "~shared-1f",
		{Limit: 1}:     prefix + "~limit1-1f",
		{Limit: 40}:    prefix + "~limit40-1f",
	} {
		key := s.newKeyLocked(prefix, mode, l)
		if key != want || modeOf(prefix, key, nil) != mode {
			t.Errorf("the key in mode %v is %q, which is read as %v; want %q", mode, key, modeOf(prefix, key, nil), want)
		}
		if key < prefix+sharedMark == mode.Shared {
			t.Errorf("%q is on the wrong side of the shared keys", key)
		}
		if name, ok := s.nameOf(key, int64(l.id)); !ok || name != "a~shared-1" {
			t.Errorf("%q is the key of %q, %v", key, name, ok)
		}
	}
	for key, value := range map[string]string{
		"1f": "", "1e": `{"host":"h"}`, "~limit0-1f": "", "~limitx-1f": "", "~shared": "", "1d": `{"mode":"shared"}`,
	} {
		if mode := modeOf(prefix, prefix+key, []byte(value)); mode != (driver.Mode{}) {
			t.Errorf("%q with the value %q of another program is read as %v", key, value, mode)
		}
	}
	if mode := modeOf(prefix, prefix+"1f", []byte(downgradedMark+`"host":"h"}`)); !mode.Shared {
		t.Errorf("a downgraded lock is read as %v", mode)
	}
}

func TestForeignKeysAreNotLocks(t *testing.T) {
	s := &Store{prefix: "p/"}
	for key, id := range map[string]clientv3.LeaseID{
		"p/a/1f":     0,    // bound to no lease
		"p/a/1e":     0x1f, // bound to another lease
		"p/a/b/1f":   0x1f, // deeper
		"p/a":        0x1f,
		"p//1f":      0x1f,
		"q/a/1f":     0x1f,
		"p/a%2f/1f":  0x1f, // not as dlock writes it
		"p/a%zz/1f":  0x1f,
		"p/a/config": 0x1f,
	} {
		if name, ok := s.nameOf(key, int64(id)); ok {
			t.Errorf("%q counts as a key of %q", key, name)
		}
	}
}

func FuzzNamesSurviveEscaping(f *testing.F) {
	for _, name := range []string{"a", "a/b", "%", "%2F", "%25", "a%252F", ""} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		escaped := escaper.Replace(name)
		if strings.Contains(escaped, "/") {
			t.Errorf("%q is written as %q", name, escaped)
		}
		if got := unescaper.Replace(escaped); got != name {
			t.Errorf("%q is written as %q and read as %q", name, escaped, got)
		}
	})
}

package etcdlock

import (
	"strings"
	"testing"

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
		key := s.newKey(s.queueOf(name), l)
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
			key := s.newKey(s.queueOf(name), l)
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

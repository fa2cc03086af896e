package main

import (
	"strings"
	"testing"
)

// TestZooKeeperIdentity: all spellings of a store are one, and different stores are not.
func TestZooKeeperIdentity(t *testing.T) {
	stores := [][]string{
		{"zookeeper://h", "zookeeper://h:2181", "zookeeper://H/", "ZOOKEEPER://ann:secret@h?timeout=10s", "zookeeper://h?order=unfair", "zookeeper://h,h:2181"},
		{"zookeeper://h:2182"},
		{"zookeeper://h/locks", "zookeeper://h/locks/", "zookeeper://u:secret@h:2181/locks?order=fair&create=true"},
		{"zookeeper://a,b/locks", "zookeeper://b:2181,a/locks"},
		{"zookeeper://h/locks/orders"},
		{"zookeeper://[::1]", "zookeeper://[::1]:2181"},
	}
	seen := make(map[string]string)
	for _, spellings := range stores {
		first := ""
		for _, raw := range spellings {
			store, err := openStoreURL(t.Context(), raw)
			if err != nil {
				t.Fatalf("%s: %v", raw, err)
			}
			if err := store.Close(); err != nil {
				t.Error(err)
			}
			if strings.Contains(store.identity+store.display, "secret") {
				t.Errorf("%s: the password is in %q or %q", raw, store.identity, store.display)
			}
			if first == "" {
				first = store.identity
			}
			if store.identity != first {
				t.Errorf("%s is %q, and %s is %q; want the same", spellings[0], first, raw, store.identity)
			}
		}
		if other, twice := seen[first]; twice {
			t.Errorf("%s and %s are both %q", other, spellings[0], first)
		}
		seen[first] = spellings[0]
	}
}

func TestBadZooKeeperURLs(t *testing.T) {
	for _, raw := range []string{
		"zookeeper://", "zookeeper://a,,b", "zookeeper://h:port", "zookeeper://ann:secret?x@h/", "zookeeper://ann:sec%ret@h/",
		"zookeeper://h?order=secret2", "zookeeper://h?secret=1", "zookeeper://h?timeout=soon", "zookeeper://h/a//b", "zookeeper://h/../a",
		"zookeeper://h?acl=creator", "zookeeper://h?ca=/no/file", "zookeeper://h?tls=true&ca=/no/file", "zookeeper:h",
	} {
		store, err := openStoreURL(t.Context(), raw)
		if err == nil {
			_ = store.Close()
			t.Errorf("%s was opened", raw)
			continue
		}
		if strings.Contains(strings.ReplaceAll(err.Error(), "secret2", ""), "secret") {
			t.Errorf("%s: the password is in %q", raw, err)
		}
	}
}

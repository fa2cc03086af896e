package stores

import (
	"errors"
	"strings"
	"testing"
)

// checkIdentities: all spellings of a store are one, and different stores are not.
// What is shown has no password in it, which is "secret".
func checkIdentities(t *testing.T, stores [][]string) {
	t.Helper()
	seen := make(map[string]string)
	for _, spellings := range stores {
		first := ""
		for _, raw := range spellings {
			store, err := Open(t.Context(), raw)
			if err != nil {
				t.Fatalf("%s: %v", raw, err)
			}
			if err := store.Close(); err != nil {
				t.Error(err)
			}
			if strings.Contains(store.Identity+store.URL, "secret") {
				t.Errorf("%s: the password is in %q or %q", raw, store.Identity, store.URL)
			}
			if first == "" {
				first = store.Identity
			}
			if store.Identity != first {
				t.Errorf("%s is %q, and %s is %q; want the same", spellings[0], first, raw, store.Identity)
			}
		}
		if other, twice := seen[first]; twice {
			t.Errorf("%s and %s are both %q", other, spellings[0], first)
		}
		seen[first] = spellings[0]
	}
}

func isURLError(err error) bool {
	_, ok := errors.AsType[*URLError](err)
	return ok
}

// TestShownURL: what is shown is where the locks are, without secrets and defaults.
func TestShownURL(t *testing.T) {
	for raw, want := range map[string]string{
		"zookeeper://ann:sec/r@et@a:1,b:2181/shop%20a/?order=unfair": "zookeeper://a:1,b/shop%20a?order=unfair",
		"redis://:secret@:6379/3?db=4":                               "redis://localhost/4",
		"redis+sentinel://u:secret@a,b/main?db=2&protocol=plain":     "redis+sentinel://a,b/main?db=2&protocol=plain",
		"redlock://u:sec%40ret@a,b:1,c/0":                            "redlock://a,b:1,c",
		"memcached://H:11211/":                                       "memcached://H",
	} {
		store, err := Open(t.Context(), raw)
		if err != nil {
			t.Errorf("%s: %v", raw, err)
			continue
		}
		if store.URL != want {
			t.Errorf("%s is shown as %s; want %s", raw, store.URL, want)
		}
		_ = store.Close() // nothing was acquired
	}
}

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

// TestPlace: what is shown is where the locks are, and no secret.
func TestPlace(t *testing.T) {
	hosts, path := Split("etcd://ann:sec/r@et@a:1,b/shop/?tls=true").place()
	if hosts != "a:1,b" || path != "shop/" {
		t.Errorf("the place is %q, %q", hosts, path)
	}
}

package memcachelock

import (
	"strings"
	"testing"
)

func TestKeysAreDistinctAndLegal(t *testing.T) {
	hash := hashed + strings.Repeat("0", 64)
	names := []string{"a", "A", "a b", "a\u00a0b", "ä", "orders/42", "#", "#a", strings.TrimPrefix(hash, prefix),
		strings.Repeat("x", 244), strings.Repeat("x", 245), strings.Repeat("x", 255), "a\r\nflush_all"}
	seen := make(map[string]string)
	for _, name := range names {
		key := string(appendKey(nil, name))
		if other, twice := seen[key]; twice {
			t.Errorf("%q and %q have the same key", name, other)
		}
		seen[key] = name
		if len(key) > maxKey || !isPlain(key) {
			t.Errorf("the key of %q is %q, which memcached does not accept", name, key)
		}
	}
	if key := string(appendKey(nil, "orders/42")); key != "dlock:orders/42" {
		t.Errorf("the key of a plain name is %q", key)
	}
}

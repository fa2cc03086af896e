package main

import "testing"

// TestMemcachedURL: all spellings of a store are one, and what cannot be is refused.
func TestMemcachedURL(t *testing.T) {
	for raw, want := range map[string]string{
		"memcached://h":           "memcached:h:11211",
		"memcached://H:11211/":    "memcached:h:11211",
		"MEMCACHED://h:11212":     "memcached:h:11212",
		"memcached://[::1]":       "memcached:[::1]:11211",
		"memcached://[::1]:1":     "memcached:[::1]:1",
		"memcached://":            "",
		"memcached:h":             "",
		"memcached://a,b":         "",
		"memcached://u:p@h":       "",
		"memcached://h?x=1":       "",
		"memcached://h:11211/db0": "",
	} {
		store, err := openStoreURL(t.Context(), raw)
		switch {
		case want == "" && err == nil:
			t.Errorf("%s was taken for %s", raw, store.identity)
		case want != "" && err != nil:
			t.Errorf("%s: %v", raw, err)
		case want != "" && store.identity != want:
			t.Errorf("%s is %s; want %s", raw, store.identity, want)
		}
		if store != nil {
			if err := store.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

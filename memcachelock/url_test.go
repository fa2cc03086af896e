package memcachelock

import (
	"errors"
	"strings"
	"testing"
)

func TestURLNamesOneServer(t *testing.T) {
	for raw, want := range map[string]string{
		"memcached://h":        "h:11211",
		"memcached://h:11211/": "h:11211",
		"MEMCACHED://h:11212":  "h:11212",
		"memcached://[::1]":    "[::1]:11211",
		"memcached://[::1]:1":  "[::1]:1",
	} {
		store, err := Open(t.Context(), raw, nil)
		if err != nil {
			t.Errorf("%s: %v", raw, err)
			continue
		}
		if addr := store.pool.addr; addr != want {
			t.Errorf("%s is at %s; want %s", raw, addr, want)
		}
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestBadURLIsRejectedWithoutShowingIt(t *testing.T) {
	for raw, says := range map[string]string{
		"":                            "does not begin",
		"redis://h":                   "does not begin",
		"memcached:h":                 "does not begin",
		"memcached://":                "host",
		"memcached://h:port":          "port",
		"memcached://a,b":             "one host",
		"memcached://ann:s3cret@h":    "password",
		"memcached://s3cret@h":        "password",
		"memcached://h?s3cret=1":      "a-z",
		"memcached://h?timeout=1s":    "no path and no parameters",
		"memcached://h:11211/s3cret":  "no path",
		"memcached://ann:s3?cret@h:1": "%3F",
	} {
		store, err := Open(t.Context(), raw, nil)
		if !errors.Is(err, ErrURL) || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "s3") {
			t.Errorf("Open(%q) = %v, %v; want ErrURL with %q and without the URL", raw, store, err, says)
		}
	}
}

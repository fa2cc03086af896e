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
		if addr, err := parseURL(raw); err != nil || addr != want {
			t.Errorf("parseURL(%q) = %q, %v; want %q", raw, addr, err, want)
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
		"memcached://h?timeout=1s":    "no parameters",
		"memcached://h:11211/s3cret":  "no path",
		"memcached://ann:s3?cret@h:1": "%3F",
	} {
		store, err := Open(t.Context(), raw, nil)
		if !errors.Is(err, ErrURL) || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "s3") {
			t.Errorf("Open(%q) = %v, %v; want ErrURL with %q and without the URL", raw, store, err, says)
		}
	}
}

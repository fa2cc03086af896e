package memcachelock

import (
	"context"
	"errors"
	"fmt"

	"github.com/dlock-go/dlock/internal/storeurl"
)

// ErrURL reports that a URL is not one of a memcached. The error contains no password.
var ErrURL = errors.New("bad URL")

// Open returns a store in the memcached of a URL:
//
//	memcached://host[:port]
//
// A missing port is 11211. Open makes no calls. A nil opts is fine. An error about the URL
// itself wraps [ErrURL].
func Open(_ context.Context, rawURL string, opts *Options) (*Store, error) {
	addr, err := parseURL(rawURL)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrURL, err)
	}
	return New(addr, opts)
}

func parseURL(raw string) (addr string, err error) {
	u, err := storeurl.Parse(raw, storeurl.Scheme{Name: "memcached", Port: "11211"})
	switch {
	case err != nil:
		return "", err
	case u.User != "" || u.Password != "":
		return "", errors.New("memcached:// takes no user and no password")
	case len(u.Hosts) > 1:
		return "", errors.New("memcached:// takes one host: a lock is on one server")
	case u.Path != "":
		return "", errors.New("memcached:// takes no path: write memcached://host:port")
	case len(u.Rest()) > 0:
		return "", errors.New("memcached:// takes no parameters")
	}
	return u.Hosts[0], nil
}

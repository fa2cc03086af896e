package memcachelock

import (
	"context"
	"fmt"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/storeurl"
)

// ErrURL reports that a URL is not one of a memcached. The error contains no password.
var ErrURL = storeurl.ErrURL

// Open returns a store in the memcached of a URL:
//
//	memcached://host[:port]
//
// A missing port is 11211. Open makes no calls. A nil opts is fine. An error about the URL
// itself wraps [ErrURL].
func Open(_ context.Context, rawURL string, opts *Options) (*Store, error) {
	u, err := storeurl.Parse(rawURL, storeurl.Scheme{Name: "memcached", Port: "11211"})
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrURL, err)
	case len(u.Hosts) > 1:
		return nil, fmt.Errorf("%w: memcached:// takes one host: a lock is on one server", ErrURL)
	case u.User != "" || u.Password != "" || u.Path != "" || len(u.Rest()) > 0:
		return nil, fmt.Errorf("%w: memcached://host:port takes no password, no path and no parameters", ErrURL)
	}
	s, err := New(u.Hosts[0], opts)
	if err == nil {
		s.location = u.Location("memcached", "")
	}
	return s, err
}

// Location implements driver.Locator.
func (s *Store) Location() driver.Location { return s.location }

package main

import (
	"context"
	"net"
	"strings"

	"github.com/dlock-go/dlock/memcachelock"
)

const defaultMemcachedPort = "11211"

// openMemcached opens memcached://host:port.
func openMemcached(_ context.Context, from storeURL) (*openStore, error) {
	place, ok := strings.CutPrefix(from.rest, "//")
	place = strings.ToLower(strings.TrimSuffix(place, "/"))
	switch {
	case from.query != "":
		return nil, usagef("memcached:// takes no parameters")
	case strings.Contains(place, "@"):
		return nil, usagef("memcached:// takes no password: dlock knows no memcached that asks for one")
	case strings.Contains(place, ","):
		return nil, usagef("memcached:// has one host: a lock is on one server")
	case !ok || place == "" || strings.Contains(place, "/"):
		return nil, usagef("write memcached://host:port")
	}
	if _, _, err := net.SplitHostPort(place); err != nil {
		place = net.JoinHostPort(strings.Trim(place, "[]"), defaultMemcachedPort)
	}
	store, err := memcachelock.New(place, nil)
	if err != nil {
		return nil, usagef("write memcached://host:port")
	}
	return &openStore{Store: store, identity: "memcached:" + place, display: "memcached://" + place}, nil
}

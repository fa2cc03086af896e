package main

import (
	"context"

	"github.com/dlock-go/dlock/memcachelock"
)

// openMemcached opens memcached://host:port.
func openMemcached(ctx context.Context, from storeURL) (*openStore, error) {
	store, err := memcachelock.Open(ctx, from.whole(), nil)
	if err != nil {
		return nil, usagef("%w", err)
	}
	host, _ := from.place()
	return &openStore{Store: store, identity: "memcached:" + sameHosts(host, "11211"), display: "memcached://" + host}, nil
}

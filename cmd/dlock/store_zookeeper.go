package main

import (
	"context"
	"net/url"
	"strings"

	"github.com/dlock-go/dlock/zklock"
)

// openZooKeeper opens zookeeper://host:port,host:port/root.
func openZooKeeper(ctx context.Context, from storeURL) (*openStore, error) {
	store, err := zklock.Open(ctx, from.whole(), nil)
	if err != nil {
		return nil, usagef("%w", err)
	}
	hosts, root := from.place()
	display := strings.TrimRight(hosts+"/"+root, "/")
	// A query that cannot be read was refused before.
	if query, err := url.ParseQuery(from.query); err == nil && query.Get("order") == "unfair" {
		display += "?order=unfair"
	}
	return &openStore{
		Store: store,
		// Whatever the order of the waiters: the two exclude each other.
		identity: "zookeeper:" + sameHosts(hosts, "2181") + "/" + strings.Trim(root, "/"),
		display:  "zookeeper://" + display,
	}, nil
}

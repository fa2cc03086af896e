package main

import (
	"cmp"
	"context"
	"net/url"
	"slices"
	"strings"

	"github.com/dlock-go/dlock/zklock"
)

// openZooKeeper opens zookeeper://host:port,host:port/root.
func openZooKeeper(_ context.Context, from storeURL) (*openStore, error) {
	raw := from.scheme + ":" + from.rest
	if from.query != "" {
		raw += "?" + from.query
	}
	store, err := zklock.Open(raw)
	if err != nil {
		return nil, usagef("%w", err)
	}
	// A query that cannot be read was refused before.
	query, _ := url.ParseQuery(from.query)
	display := zookeeperPlace(from.rest)
	if query.Get("order") == "unfair" {
		display += "?order=unfair"
	}
	return &openStore{Store: store, identity: "zookeeper:" + zookeeperIdentity(from.rest), display: "zookeeper://" + display}, nil
}

// zookeeperPlace is where the locks are, without secrets.
func zookeeperPlace(rest string) string {
	rest = strings.TrimPrefix(rest, "//")
	if at := strings.LastIndexByte(rest, '@'); at >= 0 {
		rest = rest[at+1:]
	}
	return strings.TrimRight(rest, "/")
}

// zookeeperIdentity is the same for all spellings of a store: whatever the order of
// the hosts, and of the waiters, since the two orders exclude each other.
func zookeeperIdentity(rest string) string {
	list, root, _ := strings.Cut(zookeeperPlace(rest), "/")
	hosts := strings.Split(strings.ToLower(list), ",")
	for i, host := range hosts {
		hosts[i] = cmp.Or(strings.TrimSuffix(host, ":2181"), "localhost")
	}
	slices.Sort(hosts)
	return strings.Join(slices.Compact(hosts), ",") + "/" + strings.Trim(root, "/")
}

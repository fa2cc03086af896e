package main

import (
	"context"
	"errors"
	"net/url"
	"slices"
	"strings"

	"github.com/dlock-go/dlock/etcdlock"
)

// openEtcd opens the URLs of one server and of a cluster.
func openEtcd(ctx context.Context, from storeURL) (*openStore, error) {
	raw := from.scheme + ":" + from.rest
	if from.query != "" {
		raw += "?" + from.query
	}
	store, err := etcdlock.Open(ctx, raw)
	switch {
	case errors.Is(err, etcdlock.ErrURL):
		return nil, usagef("%w", err)
	case err != nil:
		return nil, err // of the server
	}
	hosts, prefix := etcdPlace(from)
	return &openStore{
		Store:    store,
		identity: "etcd:" + etcdIdentity(hosts, prefix),
		display:  "etcd://" + strings.TrimSuffix(hosts+"/"+prefix, "/"),
	}, nil
}

// etcdPlace is where the locks are, without secrets.
func etcdPlace(from storeURL) (hosts, prefix string) {
	rest := strings.TrimPrefix(from.rest, "//")
	if at := strings.LastIndexByte(rest, '@'); at >= 0 {
		rest = rest[at+1:]
	}
	hosts, prefix, _ = strings.Cut(rest, "/")
	return hosts, strings.TrimRight(prefix, "/")
}

// etcdIdentity is the same for all spellings of a store: without what has a
// default, and whatever the order of the hosts.
func etcdIdentity(list, prefix string) string {
	hosts := strings.Split(strings.ToLower(list), ",")
	for i, host := range hosts {
		hosts[i] = strings.TrimSuffix(host, ":2379")
	}
	slices.Sort(hosts)
	if plain, err := url.PathUnescape(prefix); err == nil { // else it was refused before
		prefix = plain
	}
	return strings.Join(slices.Compact(hosts), ",") + "/" + prefix
}

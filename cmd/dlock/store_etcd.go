package main

import (
	"context"
	"errors"
	"net/url"
	"strings"

	"github.com/dlock-go/dlock/etcdlock"
)

// openEtcd opens the URLs of one server and of a cluster.
func openEtcd(ctx context.Context, from storeURL) (*openStore, error) {
	store, err := etcdlock.Open(ctx, from.whole())
	switch {
	case errors.Is(err, etcdlock.ErrURL):
		return nil, usagef("%w", err)
	case err != nil:
		return nil, err // of the server
	}
	hosts, prefix := from.place()
	prefix = strings.TrimRight(prefix, "/")
	plain, err := url.PathUnescape(prefix)
	if err != nil { // it was refused before
		plain = prefix
	}
	return &openStore{
		Store:    store,
		identity: "etcd:" + sameHosts(hosts, "2379") + "/" + plain,
		display:  "etcd://" + strings.TrimSuffix(hosts+"/"+prefix, "/"),
	}, nil
}

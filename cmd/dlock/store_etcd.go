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
	hosts, prefix := from.place()
	prefix = strings.TrimRight(prefix, "/")
	display := "etcd://" + strings.TrimSuffix(hosts+"/"+prefix, "/")
	bounded, cancel := untilFirstAnswer(ctx)
	defer cancel()
	store, err := etcdlock.Open(bounded, from.whole(), nil)
	switch {
	case errors.Is(err, etcdlock.ErrURL):
		return nil, usagef("%w", err)
	case err != nil:
		return nil, cannotUse(display, err)
	}
	plain, err := url.PathUnescape(prefix)
	if err != nil { // it was refused before
		plain = prefix
	}
	return &openStore{
		Store:    store,
		identity: "etcd:" + sameHosts(hosts, "2379") + "/" + plain,
		display:  display,
	}, nil
}

//go:build !noetcd && !onlysqlite

package stores

import (
	"context"
	"errors"
	"strings"

	"github.com/dlock-go/dlock/etcdlock"
)

var _ = register(openEtcd, "etcd")

func openEtcd(ctx context.Context, url URL) (*Store, error) {
	bounded, cancel := UntilFirstAnswer(ctx)
	defer cancel()
	store, err := etcdlock.Open(bounded, url.whole(), nil)
	at := url.place("2379")
	path := strings.TrimRight(at.Path, "/")
	if err != nil && !errors.Is(err, etcdlock.ErrURL) { // a call failed
		return nil, CannotUse(url.shown(at, path, ""), url.whole(), err)
	}
	return url.opened(store, err, "etcd", at, path)
}

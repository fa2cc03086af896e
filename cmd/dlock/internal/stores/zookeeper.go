//go:build !nozookeeper && !onlysqlite

package stores

import (
	"context"
	"strings"

	"github.com/dlock-go/dlock/zklock"
)

var _ = register(openZooKeeper, "zookeeper")

func openZooKeeper(ctx context.Context, url URL) (*Store, error) {
	store, err := zklock.Open(ctx, url.whole(), nil)
	at := url.place("2181")
	opened, err := url.opened(store, err, "zookeeper", at, strings.Trim(at.Path, "/"))
	if err == nil { // not in the identity: all of them exclude each other
		switch {
		case at.Take("order") == "unfair":
			opened.URL += "?order=unfair"
		case at.Take("modes") == "exclusive":
			opened.URL += "?modes=exclusive"
		}
	}
	return opened, err
}

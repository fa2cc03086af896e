//go:build !noredis && !onlysqlite

package stores

import (
	"cmp"
	"context"
	"errors"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/storeurl"
	"github.com/dlock-go/dlock/quorum"
	"github.com/dlock-go/dlock/redislock"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
)

// quietRedis ends the log of the driver, which repeats its errors.
var quietRedis = sync.OnceFunc(func() { redis.SetLogger(&logging.VoidLogger{}) })

var (
	_ = register(openRedis, "redis", "rediss", "redis+sentinel", "redis+cluster")
	_ = register(openRedlock, "redlock")
)

// openRedis opens one server, Sentinel or Cluster.
func openRedis(ctx context.Context, u URL) (*Store, error) {
	quietRedis()
	store, err := redislock.Open(ctx, u.whole(), nil)
	return u.openedRedis(store, err, "redis")
}

// openedRedis describes a store of Redis by its database and its protocol, without defaults.
func (u URL) openedRedis(store driver.Store, err error, family string) (*Store, error) {
	sentinel, port := u.Scheme == "redis+sentinel", "6379"
	if sentinel {
		port = "26379"
	}
	at := u.place(port)
	db, path := at.Take("db"), at.Path
	if !sentinel {
		db = cmp.Or(db, at.Path)
	}
	if number, err := strconv.Atoi(db); err == nil {
		db = strings.TrimPrefix(strconv.Itoa(number), "0") // 00 is 0
	}
	var parameters []string
	switch {
	case !sentinel:
		path = db
	case db != "":
		parameters = append(parameters, "db="+db)
	}
	if family == "redis" && at.Take("protocol") == "plain" {
		parameters = append(parameters, "protocol=plain")
	}
	return u.opened(store, err, family, at, path, parameters...)
}

// openRedlock opens a quorum of independent servers, with the plain protocol of Redlock.
func openRedlock(ctx context.Context, u URL) (*Store, error) {
	quietRedis()
	at, err := storeurl.Parse(u.whole(), storeurl.Scheme{Name: "redlock", Port: "6379"})
	if err != nil {
		return nil, URLErrorf("bad URL: %w", err)
	}
	if protocol := at.Take("protocol"); protocol != "" && protocol != "plain" {
		return nil, URLErrorf("redlock:// supports the plain protocol only, not %s", protocol)
	}
	var limit time.Duration // zero: the default
	if text := at.Take("member_timeout"); text != "" {
		if limit, err = time.ParseDuration(text); err != nil || limit <= 0 {
			return nil, URLErrorf("member_timeout=%s is not a duration such as 200ms", text)
		}
	}
	query := at.Rest()
	member := url.URL{Scheme: "redis", Path: "/" + at.Path}
	if query.Get("tls") == "true" {
		member.Scheme = "rediss"
	}
	query.Set("protocol", "plain")
	member.RawQuery = query.Encode()
	if at.User+at.Password != "" {
		member.User = url.UserPassword(at.User, at.Password)
	}
	var members []driver.Store
	closeMembers := func() (err error) {
		for _, m := range members {
			err = errors.Join(err, m.Close())
		}
		return err
	}
	for _, host := range at.Hosts {
		member.Host = host
		var opened driver.Store
		if opened, err = redislock.Open(ctx, member.String(), &redislock.Options{Redlock: true}); err != nil {
			break
		}
		members = append(members, opened)
	}
	var store driver.Store
	if err == nil {
		store, err = quorum.New(members, &quorum.Options{Names: at.Hosts, MemberTimeout: limit})
	}
	opened, err := u.openedRedis(store, err, "redlock")
	if err != nil {
		_ = closeMembers()
		return nil, err
	}
	opened.CloseMore = closeMembers
	return opened, nil
}

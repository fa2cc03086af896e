package stores

import (
	"cmp"
	"context"
	"errors"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/quorum"
	"github.com/dlock-go/dlock/redislock"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
)

// openRedis opens one server, Sentinel or Cluster.
func openRedis(ctx context.Context, u URL) (*Store, error) {
	redis.SetLogger(&logging.VoidLogger{}) // its log repeats the errors
	store, err := redislock.Open(ctx, u.whole(), nil)
	return u.openedRedis(store, err, "redis")
}

// openedRedis describes a store of Redis by its database and its protocol, if they are not
// the defaults.
func (u URL) openedRedis(store driver.Store, err error, family string) (*Store, error) {
	var parameters []string
	_, path := u.place()
	port, db := "6379", cmp.Or(u.parameter("db"), path)
	if u.Scheme == "redis+sentinel" {
		port, db = "26379", u.parameter("db")
	}
	if number, err := strconv.Atoi(db); err == nil {
		db = strconv.Itoa(number) // 00 is 0
	}
	if db == "0" {
		db = ""
	}
	if u.Scheme != "redis+sentinel" {
		path = db
	} else if db != "" {
		parameters = append(parameters, "db="+db)
	}
	if family == "redis" && u.parameter("protocol") == "plain" {
		parameters = append(parameters, "protocol=plain")
	}
	return u.opened(store, err, family, port, path, parameters...)
}

// openRedlock opens redlock://host:port,host:port,host:port, a quorum of independent
// servers. They use the plain protocol, which other implementations of Redlock share.
func openRedlock(ctx context.Context, u URL) (*Store, error) {
	redis.SetLogger(&logging.VoidLogger{})
	rest, ok := strings.CutPrefix(u.Rest, "//")
	if !ok {
		return nil, URLErrorf("write redlock://host:port,host:port,host:port")
	}
	query, limit, err := redlockQuery(u.Query)
	if err != nil {
		return nil, err
	}
	scheme := "redis"
	if query.Get("tls") == "true" {
		scheme = "rediss"
	}
	hosts, db := u.place()
	user := rest[:strings.LastIndexByte(rest, '@')+1]
	names := strings.Split(hosts, ",")
	var members []driver.Store
	closeMembers := func() error {
		var errs []error
		for _, m := range members {
			errs = append(errs, m.Close())
		}
		return errors.Join(errs...)
	}
	var store driver.Store
	for _, host := range names {
		var member driver.Store
		if member, err = redislock.Open(ctx, scheme+"://"+user+host+"/"+db+"?"+query.Encode(), nil); err != nil {
			break
		}
		members = append(members, member)
	}
	if err == nil {
		store, err = quorum.New(members, &quorum.Options{Names: names, MemberTimeout: limit})
	}
	opened, err := u.openedRedis(store, err, "redlock")
	if err != nil {
		_ = closeMembers()
		return nil, err
	}
	opened.CloseMore = closeMembers
	return opened, nil
}

// redlockQuery returns the parameters of each member and the time that a member may take to
// answer, where zero is the default.
func redlockQuery(text string) (query url.Values, limit time.Duration, err error) {
	if strings.Contains(text, "@") {
		// The '?' may belong to the password.
		return nil, 0, URLErrorf("an '@' follows the '?' of the store URL: write '?' as %%3F in a password, and '@' as %%40 in a parameter")
	}
	query, err = url.ParseQuery(text)
	if err != nil {
		return nil, 0, URLErrorf("what follows the '?' of the store URL cannot be read")
	}
	if protocol := query.Get("protocol"); protocol != "" && protocol != "plain" {
		return nil, 0, URLErrorf("redlock:// supports the plain protocol only, not %s", protocol)
	}
	query.Set("protocol", "plain")
	if text := query.Get("member_timeout"); text != "" {
		if limit, err = time.ParseDuration(text); err != nil || limit <= 0 {
			return nil, 0, URLErrorf("member_timeout=%s is not a duration such as 200ms", text)
		}
	}
	query.Del("member_timeout")
	return query, limit, nil
}

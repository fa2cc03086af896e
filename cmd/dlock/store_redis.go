package main

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

// openRedis opens the URLs of one server, of Sentinel and of Cluster.
func openRedis(ctx context.Context, from storeURL) (*openStore, error) {
	quietRedis()
	store, err := redislock.Open(ctx, from.whole(), nil)
	if err != nil {
		return nil, usagef("%w", err)
	}
	place := redisPlace(from)
	return &openStore{Store: store, identity: "redis:" + redisIdentity(from), display: from.scheme + "://" + place}, nil
}

// quietRedis keeps the client's own log off the terminal: what matters comes back
// as an error.
func quietRedis() { redis.SetLogger(&logging.VoidLogger{}) }

// redisPlace is where the locks are, and in which protocol, without secrets.
func redisPlace(from storeURL) string {
	hosts, path := from.place()
	place := strings.TrimSuffix(hosts+"/"+path, "/")
	if strings.HasPrefix(from.scheme, "rediss") || from.scheme == "redis" {
		place = strings.TrimSuffix(place, "/0")
	}
	// A query that cannot be read was refused before.
	if query, err := url.ParseQuery(from.query); err == nil && query.Get("protocol") == "plain" {
		place += "?protocol=plain"
	}
	return place
}

// redisIdentity is the same for all spellings of a store: without what has a
// default, and whatever the order of the hosts.
func redisIdentity(from storeURL) string {
	hosts, path := from.place()
	// A query that cannot be read was refused before.
	query, _ := url.ParseQuery(from.query)
	master, db := "", cmp.Or(query.Get("db"), path)
	if from.scheme == "redis+sentinel" {
		master, db = path, query.Get("db")
	}
	if number, err := strconv.Atoi(cmp.Or(db, "0")); err == nil {
		db = strconv.Itoa(number) // 00 is 0
	}
	protocol := cmp.Or(query.Get("protocol"), "redisson")
	return strings.Join([]string{sameHosts(hosts, defaultRedisPort(from.scheme)), master, db, protocol}, "/")
}

func defaultRedisPort(scheme string) string {
	if scheme == "redis+sentinel" {
		return "26379"
	}
	return "6379"
}

// openRedlock opens redlock://host:port,host:port,host:port: a quorum of
// independent servers. They speak the plain protocol, which other Redlocks share.
func openRedlock(ctx context.Context, from storeURL) (*openStore, error) {
	quietRedis()
	rest, ok := strings.CutPrefix(from.rest, "//")
	if !ok {
		return nil, usagef("write redlock://host:port,host:port,host:port")
	}
	query, limit, err := redlockQuery(from.query)
	if err != nil {
		return nil, err
	}
	user, hosts := "", rest
	if at := strings.LastIndexByte(rest, '@'); at >= 0 {
		user, hosts = rest[:at+1], rest[at+1:]
	}
	hosts, db, _ := strings.Cut(hosts, "/")
	scheme := "redis"
	if query.Get("tls") == "true" {
		scheme = "rediss"
	}
	names := strings.Split(hosts, ",")
	var members []driver.Store
	closeMembers := func() error {
		var errs []error
		for _, m := range members {
			errs = append(errs, m.Close())
		}
		return errors.Join(errs...)
	}
	for _, host := range names {
		member, err := redislock.Open(ctx, scheme+"://"+user+host+"/"+db+"?"+query.Encode(), nil)
		if err != nil {
			_ = closeMembers()
			return nil, usagef("%w", err)
		}
		members = append(members, member)
	}
	store, err := quorum.New(members, &quorum.Options{Names: names, MemberTimeout: limit})
	if err != nil {
		_ = closeMembers()
		return nil, usagef("%w", err)
	}
	from.query = query.Encode() // with the protocol
	place := redisPlace(storeURL{scheme: from.scheme, rest: hosts + "/" + db})
	return &openStore{Store: store, identity: "redlock:" + redisIdentity(from), display: "redlock://" + place, closeMore: closeMembers}, nil
}

// redlockQuery are the parameters of each member, and how long one may take to answer;
// zero is the default.
func redlockQuery(text string) (query url.Values, limit time.Duration, err error) {
	if strings.Contains(text, "@") {
		// The '?' may be one of the password.
		return nil, 0, usagef("an '@' follows the '?' of the store URL: write '?' as %%3F in a password, and '@' as %%40 in a parameter")
	}
	query, err = url.ParseQuery(text)
	if err != nil {
		return nil, 0, usagef("what follows the '?' of the store URL cannot be read")
	}
	if protocol := query.Get("protocol"); protocol != "" && protocol != "plain" {
		return nil, 0, usagef("redlock:// speaks the plain protocol only, and not %s", protocol)
	}
	query.Set("protocol", "plain")
	if text := query.Get("member_timeout"); text != "" {
		if limit, err = time.ParseDuration(text); err != nil || limit <= 0 {
			return nil, 0, usagef("member_timeout=%s is not a duration such as 200ms", text)
		}
	}
	query.Del("member_timeout")
	return query, limit, nil
}

package redislock

import (
	"cmp"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/dlock-go/dlock/internal/storeurl"
	"github.com/redis/go-redis/v9"
)

// Open returns a store with a client of its own, which Close closes, for
// programs that have none. It makes no calls.
//
//	redis://[user:password@]host:port[/db]      one server; rediss:// with TLS
//	redis+sentinel://host:port,host:port/name   the master that Sentinel knows by that name
//	redis+cluster://host:port,host:port         Cluster
//
// Parameters of the URL: protocol=redisson or plain; replicas=N and
// replica_timeout=1s as in [Options]; tls=true for Sentinel and Cluster;
// ca=FILE, a certificate authority to trust; cert=FILE and key=FILE, the client's
// certificate; sentinel_username and sentinel_password, and db=N, for Sentinel.
// All others are go-redis's, such as read_timeout=500ms.
//
// A password is written with %3F for '?', %40 for '@' and %25 for '%'. Errors
// contain no password.
func Open(rawURL string) (*Store, error) {
	address, err := parseAddress(rawURL)
	if err != nil {
		return nil, err
	}
	opts, err := address.options()
	if err != nil {
		return nil, err
	}
	client, err := address.client()
	if err != nil {
		return nil, err
	}
	store, err := New(client, opts)
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	store.owned = client
	return store, nil
}

// address is a URL of a store.
type address struct{ *storeurl.URL }

var errURL = errors.New("bad URL")

func parseAddress(raw string) (*address, error) {
	u, err := storeurl.Parse(raw, storeurl.Scheme{Name: "redis", Port: "6379"}, storeurl.Scheme{Name: "rediss", Port: "6379"},
		storeurl.Scheme{Name: "redis+sentinel", Port: "26379"}, storeurl.Scheme{Name: "redis+cluster", Port: "6379"})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errURL, err)
	}
	return &address{u}, nil
}

// options takes the parameters that are not go-redis's.
func (a *address) options() (*Options, error) {
	opts := &Options{}
	protocol, err := a.TakeOne("protocol", "redisson", "plain")
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errURL, err)
	}
	if protocol == "plain" {
		opts.Protocol = Plain
	}
	if text := a.Take("replicas"); text != "" {
		if opts.Replicas, err = strconv.Atoi(text); err != nil || opts.Replicas < 0 {
			return nil, fmt.Errorf("%w: replicas is %q, not a number of replicas", errURL, text)
		}
	}
	if text := a.Take("replica_timeout"); text != "" {
		if opts.ReplicaTimeout, err = time.ParseDuration(text); err != nil || opts.ReplicaTimeout <= 0 {
			return nil, fmt.Errorf("%w: replica_timeout is %q, not a duration such as 500ms", errURL, text)
		}
	}
	return opts, nil
}

// dialerRetries is one attempt: dlock tries again itself, and says sooner what is
// wrong.
const dialerRetries = 1

func (a *address) client() (redis.UniversalClient, error) {
	config, err := a.TakeTLS(a.Scheme == "rediss")
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errURL, err)
	}
	switch a.Scheme {
	case "redis+sentinel":
		return a.sentinel(config)
	case "redis+cluster":
		return a.cluster(config)
	default:
		return a.single(config)
	}
}

func (a *address) single(config *tls.Config) (redis.UniversalClient, error) {
	if len(a.Hosts) != 1 {
		return nil, fmt.Errorf("%w: %s:// has one host, not %d; several are for redis+sentinel://, redis+cluster:// and redlock://", errURL, a.Scheme, len(a.Hosts))
	}
	if _, err := strconv.ParseUint(a.Path, 10, 31); err != nil && a.Path != "" {
		return nil, fmt.Errorf("%w: what follows the '/' is not the number of a database", errURL)
	}
	opts, err := redis.ParseURL(a.forGoRedis(a.Path))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errURL, err)
	}
	opts.Addr = a.Hosts[0]
	opts.Username, opts.Password = a.User, a.Password
	opts.DialerRetries = cmp.Or(opts.DialerRetries, dialerRetries)
	opts.ContextTimeoutEnabled = true
	if opts.TLSConfig = config; config != nil {
		host, _, err := net.SplitHostPort(a.Hosts[0])
		if err != nil {
			return nil, fmt.Errorf("%w: the host cannot be read", errURL)
		}
		config.ServerName = host
	}
	return redis.NewClient(opts), nil
}

func (a *address) sentinel(config *tls.Config) (redis.UniversalClient, error) {
	if a.Path == "" || strings.Contains(a.Path, "/") {
		return nil, fmt.Errorf("%w: redis+sentinel:// wants the name of the master after the hosts: redis+sentinel://host:port/name", errURL)
	}
	user, password := a.Take("sentinel_username"), a.Take("sentinel_password")
	a.Rest().Set("master_name", a.Path)
	opts, err := redis.ParseFailoverURL(a.forGoRedis(""))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errURL, err)
	}
	opts.SentinelAddrs = a.Hosts
	opts.Username, opts.Password = a.User, a.Password
	opts.SentinelUsername, opts.SentinelPassword = user, password
	opts.TLSConfig = config
	opts.DialerRetries = cmp.Or(opts.DialerRetries, dialerRetries)
	opts.ContextTimeoutEnabled = true
	return redis.NewFailoverClient(opts), nil
}

func (a *address) cluster(config *tls.Config) (redis.UniversalClient, error) {
	if a.Path != "" {
		return nil, fmt.Errorf("%w: redis+cluster:// has no path: a cluster has no databases", errURL)
	}
	opts, err := redis.ParseClusterURL(a.forGoRedis(""))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errURL, err)
	}
	opts.Addrs = a.Hosts
	opts.Username, opts.Password = a.User, a.Password
	opts.TLSConfig = config
	opts.DialerRetries = cmp.Or(opts.DialerRetries, dialerRetries)
	opts.ContextTimeoutEnabled = true
	return redis.NewClusterClient(opts), nil
}

// forGoRedis is a URL for go-redis to read the parameters from, with nothing in it
// that may be a secret.
func (a *address) forGoRedis(path string) string {
	u := url.URL{Scheme: "redis", Host: "localhost", Path: "/" + path, RawQuery: a.Rest().Encode()}
	return u.String()
}

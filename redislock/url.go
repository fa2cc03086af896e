package redislock

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

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

// address is a URL of a store, taken apart by hand: the errors of package net/url
// quote their input, and it does not know lists of hosts.
type address struct {
	scheme         string
	user, password string
	hosts          []string
	path           string
	query          url.Values
}

var errURL = errors.New("redislock: bad URL")

func parseAddress(raw string) (*address, error) {
	scheme, rest, found := strings.Cut(raw, "://")
	if !found {
		return nil, fmt.Errorf("%w: it does not begin with redis://, rediss://, redis+sentinel:// or redis+cluster://", errURL)
	}
	a := &address{scheme: strings.ToLower(scheme)}
	rest, query, _ := strings.Cut(rest, "?")
	if strings.Contains(query, "@") {
		// The '?' may be one of the password. Guessing would show it, or send
		// it to another host.
		return nil, fmt.Errorf("%w: an '@' follows the '?': write '?' as %%3F in a password, and '@' as %%40 in a parameter", errURL)
	}
	if err := a.parseQuery(query); err != nil {
		return nil, err
	}
	if at := strings.LastIndexByte(rest, '@'); at >= 0 {
		if err := a.parseUser(rest[:at]); err != nil {
			return nil, err
		}
		rest = rest[at+1:]
	}
	hosts, path, _ := strings.Cut(rest, "/")
	a.path = path
	for host := range strings.SplitSeq(hosts, ",") {
		if host == "" {
			return nil, fmt.Errorf("%w: a host is missing", errURL)
		}
		if host = withPort(host, a.defaultPort()); !isHostPort(host) {
			return nil, fmt.Errorf("%w: a host is not followed by a port that is a number; a password is followed by '@'", errURL)
		}
		a.hosts = append(a.hosts, host)
	}
	return a, nil
}

// parseQuery reads the parameters. A name that none can have is not repeated by
// later errors, because it may be a part of a password.
func (a *address) parseQuery(text string) (err error) {
	if a.query, err = url.ParseQuery(text); err != nil {
		return fmt.Errorf("%w: what follows the '?' cannot be read", errURL)
	}
	for name := range a.query {
		if strings.Trim(name, "abcdefghijklmnopqrstuvwxyz_") != "" {
			return fmt.Errorf("%w: a parameter's name has other characters than a-z and '_'", errURL)
		}
	}
	return nil
}

func (a *address) parseUser(info string) error {
	user, password, _ := strings.Cut(info, ":")
	var err error
	if a.user, err = url.PathUnescape(user); err == nil {
		a.password, err = url.PathUnescape(password)
	}
	if err != nil {
		return fmt.Errorf("%w: the user or the password has a '%%' that is not followed by two hexadecimal digits", errURL)
	}
	return nil
}

func (a *address) defaultPort() string {
	if a.scheme == "redis+sentinel" {
		return "26379"
	}
	return "6379"
}

func withPort(host, port string) string {
	if end := strings.LastIndexByte(host, ']'); strings.LastIndexByte(host, ':') > end {
		return host
	}
	return host + ":" + port
}

func isHostPort(text string) bool {
	_, port, err := net.SplitHostPort(text)
	if err != nil {
		return false
	}
	_, err = strconv.ParseUint(port, 10, 16)
	return err == nil
}

// take removes a parameter and returns its value.
func (a *address) take(name string) string {
	value := a.query.Get(name)
	a.query.Del(name)
	return value
}

// options takes the parameters that are not go-redis's.
func (a *address) options() (*Options, error) {
	opts := &Options{}
	switch protocol := a.take("protocol"); protocol {
	case "", "redisson":
	case "plain":
		opts.Protocol = Plain
	default:
		return nil, fmt.Errorf("%w: protocol is %q, not redisson or plain", errURL, protocol)
	}
	var err error
	if text := a.take("replicas"); text != "" {
		if opts.Replicas, err = strconv.Atoi(text); err != nil || opts.Replicas < 0 {
			return nil, fmt.Errorf("%w: replicas is %q, not a number of replicas", errURL, text)
		}
	}
	if text := a.take("replica_timeout"); text != "" {
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
	config, err := a.tls()
	if err != nil {
		return nil, err
	}
	switch a.scheme {
	case "redis", "rediss":
		return a.single(config)
	case "redis+sentinel":
		return a.sentinel(config)
	case "redis+cluster":
		return a.cluster(config)
	default:
		return nil, fmt.Errorf("%w: it does not begin with redis://, rediss://, redis+sentinel:// or redis+cluster://", errURL)
	}
}

// tls is nil where none is wanted.
func (a *address) tls() (*tls.Config, error) {
	ca, cert, key := a.take("ca"), a.take("cert"), a.take("key")
	wanted := a.scheme == "rediss"
	switch text := a.take("tls"); text {
	case "", "false":
	case "true":
		wanted = true
	default:
		return nil, fmt.Errorf("%w: tls is %q, not true or false", errURL, text)
	}
	if !wanted {
		if ca != "" || cert != "" || key != "" {
			return nil, fmt.Errorf("%w: ca, cert and key are for TLS: use rediss://, or tls=true for Sentinel and Cluster", errURL)
		}
		return nil, nil
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if ca != "" {
		pem, err := os.ReadFile(ca)
		if err != nil {
			return nil, fmt.Errorf("%w: ca: %w", errURL, err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%w: ca: there is no certificate in %s", errURL, ca)
		}
	}
	if cert != "" || key != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return nil, fmt.Errorf("%w: cert and key: %w", errURL, err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

func (a *address) single(config *tls.Config) (redis.UniversalClient, error) {
	if len(a.hosts) != 1 {
		return nil, fmt.Errorf("%w: %s:// has one host, not %d; several are for redis+sentinel://, redis+cluster:// and redlock://", errURL, a.scheme, len(a.hosts))
	}
	if _, err := strconv.ParseUint(a.path, 10, 31); err != nil && a.path != "" {
		return nil, fmt.Errorf("%w: what follows the '/' is not the number of a database", errURL)
	}
	opts, err := redis.ParseURL(a.forGoRedis(a.path))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errURL, err)
	}
	opts.Addr = a.hosts[0]
	opts.Username, opts.Password = a.user, a.password
	opts.DialerRetries = cmp.Or(opts.DialerRetries, dialerRetries)
	opts.ContextTimeoutEnabled = true
	if opts.TLSConfig = config; config != nil {
		host, _, err := net.SplitHostPort(a.hosts[0])
		if err != nil {
			return nil, fmt.Errorf("%w: the host cannot be read", errURL)
		}
		config.ServerName = host
	}
	return redis.NewClient(opts), nil
}

func (a *address) sentinel(config *tls.Config) (redis.UniversalClient, error) {
	if a.path == "" || strings.Contains(a.path, "/") {
		return nil, fmt.Errorf("%w: redis+sentinel:// wants the name of the master after the hosts: redis+sentinel://host:port/name", errURL)
	}
	user, password := a.take("sentinel_username"), a.take("sentinel_password")
	a.query.Set("master_name", a.path)
	opts, err := redis.ParseFailoverURL(a.forGoRedis(""))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errURL, err)
	}
	opts.SentinelAddrs = a.hosts
	opts.Username, opts.Password = a.user, a.password
	opts.SentinelUsername, opts.SentinelPassword = user, password
	opts.TLSConfig = config
	opts.DialerRetries = cmp.Or(opts.DialerRetries, dialerRetries)
	opts.ContextTimeoutEnabled = true
	return redis.NewFailoverClient(opts), nil
}

func (a *address) cluster(config *tls.Config) (redis.UniversalClient, error) {
	if a.path != "" {
		return nil, fmt.Errorf("%w: redis+cluster:// has no path: a cluster has no databases", errURL)
	}
	opts, err := redis.ParseClusterURL(a.forGoRedis(""))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errURL, err)
	}
	opts.Addrs = a.hosts
	opts.Username, opts.Password = a.user, a.password
	opts.TLSConfig = config
	opts.DialerRetries = cmp.Or(opts.DialerRetries, dialerRetries)
	opts.ContextTimeoutEnabled = true
	return redis.NewClusterClient(opts), nil
}

// forGoRedis is a URL for go-redis to read the parameters from, with nothing in it
// that may be a secret.
func (a *address) forGoRedis(path string) string {
	u := url.URL{Scheme: "redis", Host: "localhost", Path: "/" + path, RawQuery: a.query.Encode()}
	return u.String()
}

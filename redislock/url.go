package redislock

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/storeurl"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// ErrURL is wrapped by the errors of Open about the URL itself. They contain no password.
var ErrURL = storeurl.ErrURL

// Open returns a store with a client of its own, which Close closes. It makes no calls, and ctx
// is not used. A nil opts is fine; the parameters of the URL take precedence over opts.
//
//	redis://[user:password@]host:port[/db]      one server; rediss:// with TLS
//	redis+sentinel://host:port,host:port/name   the master that Sentinel knows by that name
//	redis+cluster://host:port,host:port         Cluster
//
// Parameters of the URL: protocol=redisson or plain; replicas=N and replica_timeout=1s as in
// [Options]; tls=true for Sentinel and Cluster; ca=FILE, a certificate authority to trust;
// cert=FILE and key=FILE, the client's certificate; sentinel_username and sentinel_password, and
// db=N, for Sentinel. All others are those of go-redis, such as read_timeout=500ms.
//
// A password is written with %3F for '?', %40 for '@' and %25 for '%'. Errors contain no
// password.
func Open(_ context.Context, rawURL string, opts *Options) (*Store, error) {
	return openStore(rawURL, opts, tokenStep)
}

func openStore(rawURL string, opts *Options, step uint64) (*Store, error) {
	o := *cmp.Or(opts, &Options{})
	a, client, err := newClient(rawURL, &o)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrURL, err)
	}
	store, err := newStore(client, &o, step)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%w: %w", ErrURL, err), client.Close())
	}
	store.owned, store.location = client, a.location(client, o.Protocol)
	return store, nil
}

// Location implements driver.Locator.
func (s *Store) Location() driver.Location { return s.location }

type address struct {
	*storeurl.URL
	tls *tls.Config // nil without TLS
}

// newClient returns a client for the URL, and applies the URL's parameters to opts.
func newClient(raw string, opts *Options) (a *address, client redis.UniversalClient, err error) {
	u, err := storeurl.Parse(raw, storeurl.Scheme{Name: "redis", Port: "6379"}, storeurl.Scheme{Name: "rediss", Port: "6379"},
		storeurl.Scheme{Name: "redis+sentinel", Port: "26379"}, storeurl.Scheme{Name: "redis+cluster", Port: "6379"})
	if err != nil {
		return nil, nil, err
	}
	if err := opts.apply(u); err != nil {
		return nil, nil, err
	}
	a = &address{URL: u}
	if a.tls, err = u.TakeTLS(u.Scheme == "rediss"); err != nil {
		return nil, nil, err
	}
	switch u.Scheme {
	case "redis+sentinel":
		client, err = a.sentinel()
	case "redis+cluster":
		client, err = a.cluster()
	default:
		client, err = a.single()
	}
	return a, client, err
}

// location names the database, and the protocol if it is not the default.
func (a *address) location(client redis.UniversalClient, protocol Protocol) driver.Location {
	path, parameters := a.Path, []string(nil)
	if one, ok := client.(*redis.Client); ok {
		db := strings.TrimPrefix(strconv.Itoa(one.Options().DB), "0")
		switch {
		case a.Scheme != "redis+sentinel":
			path = db
		case db != "":
			parameters = append(parameters, "db="+db)
		}
	}
	if protocol == Plain {
		parameters = append(parameters, "protocol=plain")
	}
	return a.Location("redis", path, parameters...)
}

// apply takes the parameters that are not those of go-redis.
func (o *Options) apply(u *storeurl.URL) error {
	protocol, err := u.TakeOne("protocol", Redisson.String(), Plain.String())
	if err != nil {
		return err
	}
	if protocol != "" {
		o.Protocol = map[string]Protocol{Redisson.String(): Redisson, Plain.String(): Plain}[protocol]
	}
	if text := u.Take("replicas"); text != "" {
		if o.Replicas, err = strconv.Atoi(text); err != nil || o.Replicas < 0 {
			return fmt.Errorf("replicas is %q, not a number from 0", text)
		}
	}
	if text := u.Take("replica_timeout"); text != "" {
		if o.ReplicaTimeout, err = time.ParseDuration(text); err != nil || o.ReplicaTimeout <= 0 {
			return fmt.Errorf("replica_timeout is %q, not a duration such as 500ms", text)
		}
	}
	if size, err := strconv.Atoi(u.Rest().Get("pool_size")); err == nil && size < 0 { // go-redis panics
		return fmt.Errorf("pool_size is %d, not a number from 0", size)
	}
	return nil
}

// The clients of Open do without what costs a new connection a round trip: the name of their
// library, and announcements of maintenance. They dial once, because dlock tries again itself.
const dialerRetries = 1

// probeDelay is how long a TLS handshake takes until the server is asked whether it uses TLS.
const probeDelay = 250 * time.Millisecond

var errNoTLS = fmt.Errorf("%w: the server answers without TLS: leave it out of the URL, or use the port for TLS", driver.ErrMisconfigured)

// dialer returns nil without TLS. A server without TLS does not answer a handshake, so a handshake
// that takes long is given up if the server answers without TLS on a second connection.
func (a *address) dialer() func(ctx context.Context, network, addr string) (net.Conn, error) {
	if a.tls == nil {
		return nil
	}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		defer time.AfterFunc(probeDelay, func() {
			if answersWithoutTLS(ctx, network, addr) {
				cancel(errNoTLS)
			}
		}).Stop()
		conn, err := (&tls.Dialer{Config: a.tls}).DialContext(ctx, network, addr)
		if err != nil && errors.Is(context.Cause(ctx), errNoTLS) {
			return nil, errNoTLS
		}
		return conn, err
	}
}

func answersWithoutTLS(ctx context.Context, network, addr string) bool {
	conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
	if err != nil {
		return false
	}
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })() // ends the reading
	defer conn.Close()
	_, _ = conn.Write([]byte("PING\r\n")) // an error shows in the reading
	var first [1]byte
	_, err = conn.Read(first[:])
	return err == nil && (first[0] == '+' || first[0] == '-') // what begins a line of Redis
}

func (a *address) single() (redis.UniversalClient, error) {
	if len(a.Hosts) != 1 {
		return nil, fmt.Errorf("%s:// has one host, not %d; several are for redis+sentinel://, redis+cluster:// and redlock://", a.Scheme, len(a.Hosts))
	}
	if _, err := strconv.ParseUint(a.Path, 10, 31); err != nil && a.Path != "" {
		return nil, errors.New("bad path (want the number of a database)") // it may be a part of a password
	}
	opts, err := redis.ParseURL(a.forGoRedis(a.Path))
	if err != nil {
		return nil, withoutNames(err)
	}
	opts.Addr = a.Hosts[0]
	opts.Username, opts.Password = a.User, a.Password
	opts.DialerRetries = cmp.Or(opts.DialerRetries, dialerRetries)
	opts.ContextTimeoutEnabled, opts.DisableIdentity = true, true
	opts.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	if a.tls != nil {
		a.tls.ServerName, _, _ = net.SplitHostPort(a.Hosts[0]) // storeurl has checked it
	}
	opts.TLSConfig, opts.Dialer = a.tls, a.dialer()
	return redis.NewClient(opts), nil
}

func (a *address) sentinel() (redis.UniversalClient, error) {
	if a.Path == "" || strings.Contains(a.Path, "/") {
		return nil, errors.New("redis+sentinel:// wants the name of the master after the hosts: redis+sentinel://host:port/name")
	}
	user, password := a.Take("sentinel_username"), a.Take("sentinel_password")
	a.Rest().Set("master_name", a.Path)
	opts, err := redis.ParseFailoverURL(a.forGoRedis(""))
	if err != nil {
		return nil, withoutNames(err)
	}
	opts.SentinelAddrs = a.Hosts
	opts.Username, opts.Password = a.User, a.Password
	opts.SentinelUsername, opts.SentinelPassword = user, password
	opts.TLSConfig, opts.Dialer = a.tls, a.dialer()
	opts.DialerRetries = cmp.Or(opts.DialerRetries, dialerRetries)
	opts.ContextTimeoutEnabled, opts.DisableIdentity = true, true
	return redis.NewFailoverClient(opts), nil
}

func (a *address) cluster() (redis.UniversalClient, error) {
	if a.Path != "" {
		return nil, errors.New("redis+cluster:// has no path: a cluster has no databases")
	}
	opts, err := redis.ParseClusterURL(a.forGoRedis(""))
	if err != nil {
		return nil, withoutNames(err)
	}
	opts.Addrs = a.Hosts
	opts.Username, opts.Password = a.User, a.Password
	opts.TLSConfig, opts.Dialer = a.tls, a.dialer()
	opts.DialerRetries = cmp.Or(opts.DialerRetries, dialerRetries)
	opts.ContextTimeoutEnabled, opts.DisableIdentity = true, true
	opts.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	return redis.NewClusterClient(opts), nil
}

// withoutNames replaces the error of go-redis about parameters that it does not know, which quotes
// their names: they may be a part of a password.
func withoutNames(err error) error {
	if strings.Contains(err.Error(), "unexpected option") {
		return errors.New("unknown parameter; known are protocol, replicas, replica_timeout, tls, ca, cert, key, for Sentinel " +
			"sentinel_username and sentinel_password, and those of go-redis, such as read_timeout; write '?' as %3F in a password")
	}
	return err
}

// forGoRedis returns a URL from which go-redis reads the remaining parameters. It contains
// nothing that may be a secret.
func (a *address) forGoRedis(path string) string {
	u := url.URL{Scheme: "redis", Host: "localhost", Path: "/" + path, RawQuery: a.Rest().Encode()}
	return u.String()
}

package etcdlock

import (
	"context"
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

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// Open returns a store with a client of its own, which Close closes, for
// programs that have none.
//
//	etcd://[user:password@]host:port,host:port[/prefix]
//
// The hosts are members of one cluster; a port that is left out is 2379. The
// prefix "shop" makes keys begin with "shop/", as in etcdctl lock shop/orders.
// Parameters of the URL: tls=true; ca=FILE, a certificate authority to trust;
// cert=FILE and key=FILE, the client's certificate.
//
// A password is written with %3F for '?', %40 for '@' and %25 for '%'. Errors
// contain no password. With a user the server is asked whether it knows the
// password; without, Open makes no calls.
//
// An error about the URL itself wraps [ErrURL].
func Open(ctx context.Context, rawURL string) (*Store, error) {
	address, err := parseAddress(rawURL)
	if err != nil {
		return nil, err
	}
	config, err := address.config()
	if err != nil {
		return nil, err
	}
	client, err := dial(ctx, config)
	if err != nil {
		return nil, err
	}
	store, err := New(client, &Options{Prefix: address.prefix()})
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	store.owned = client
	return store, nil
}

const (
	// dialTimeout bounds asking for the token of a user.
	dialTimeout = 5 * time.Second
	// A connection that has been silent for pingAfter is probed, which is as
	// often as the protocol allows.
	pingAfter   = 10 * time.Second
	pingTimeout = 3 * time.Second
	// retries is few: dlock tries again itself, and says sooner what is wrong.
	retries = 3
)

// dial makes a client. It returns soon after ctx is done, though the client's own
// function does not know it.
func dial(ctx context.Context, config clientv3.Config) (*clientv3.Client, error) {
	type dialled struct {
		client *clientv3.Client
		err    error
	}
	result := make(chan dialled, 1)
	go func() {
		client, err := clientv3.New(config)
		result <- dialled{client, err}
	}()
	select {
	case d := <-result:
		if d.err != nil {
			return nil, explainError(d.err)
		}
		return d.client, nil
	case <-ctx.Done():
		go func() {
			if d := <-result; d.err == nil {
				_ = d.client.Close() // nobody has used it
			}
		}()
		return nil, context.Cause(ctx)
	}
}

// address is a URL of a store, taken apart by hand: the errors of package net/url
// quote their input, and it does not know lists of hosts.
type address struct {
	user, password string
	hosts          []string
	path           string
	query          url.Values
}

// ErrURL says that a URL cannot be read. The error contains no password.
var ErrURL = errors.New("etcdlock: bad URL")

func parseAddress(raw string) (*address, error) {
	scheme, rest, found := strings.Cut(raw, "://")
	if !found || !strings.EqualFold(scheme, "etcd") {
		return nil, fmt.Errorf("%w: it does not begin with etcd://", ErrURL)
	}
	a := &address{}
	rest, query, _ := strings.Cut(rest, "?")
	if strings.Contains(query, "@") {
		// The '?' may be one of the password. Guessing would show it, or send
		// it to another host.
		return nil, fmt.Errorf("%w: an '@' follows the '?': write '?' as %%3F in a password, and '@' as %%40 in a parameter", ErrURL)
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
	if err := a.parseHosts(hosts); err != nil {
		return nil, err
	}
	var err error
	if a.path, err = url.PathUnescape(path); err != nil {
		return nil, fmt.Errorf("%w: the prefix has a '%%' that is not followed by two hexadecimal digits", ErrURL)
	}
	return a, nil
}

// parameters are those that a URL may have.
var parameters = map[string]bool{"tls": true, "ca": true, "cert": true, "key": true}

// parseQuery reads the parameters. A name that none can have is not repeated,
// because it may be a part of a password.
func (a *address) parseQuery(text string) (err error) {
	if a.query, err = url.ParseQuery(text); err != nil {
		return fmt.Errorf("%w: what follows the '?' cannot be read", ErrURL)
	}
	for name := range a.query {
		if strings.Trim(name, "abcdefghijklmnopqrstuvwxyz_") != "" {
			return fmt.Errorf("%w: a parameter's name has other characters than a-z and '_'", ErrURL)
		}
		if !parameters[name] {
			return fmt.Errorf("%w: unknown parameter %q; known are tls, ca, cert and key", ErrURL, name)
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
		return fmt.Errorf("%w: the user or the password has a '%%' that is not followed by two hexadecimal digits", ErrURL)
	}
	if a.user == "" || a.password == "" {
		return fmt.Errorf("%w: before the '@' belong a user and a password", ErrURL)
	}
	return nil
}

const defaultPort = "2379"

func (a *address) parseHosts(list string) error {
	for host := range strings.SplitSeq(list, ",") {
		if host == "" {
			return fmt.Errorf("%w: a host is missing", ErrURL)
		}
		if end := strings.LastIndexByte(host, ']'); strings.LastIndexByte(host, ':') <= end {
			host += ":" + defaultPort
		}
		name, port, err := net.SplitHostPort(host)
		if err == nil {
			_, err = strconv.ParseUint(port, 10, 16)
		}
		if err != nil || name == "" {
			return fmt.Errorf("%w: a host is not followed by a port that is a number; a password is followed by '@'", ErrURL)
		}
		a.hosts = append(a.hosts, host)
	}
	return nil
}

// prefix ends with the '/' after which names begin.
func (a *address) prefix() string {
	if path := strings.TrimRight(a.path, "/"); path != "" {
		return path + "/"
	}
	return ""
}

func (a *address) config() (clientv3.Config, error) {
	security, err := a.tls()
	if err != nil {
		return clientv3.Config{}, err
	}
	scheme := "http://"
	if security != nil {
		scheme = "https://"
	}
	config := clientv3.Config{
		DialTimeout:          dialTimeout,
		DialKeepAliveTime:    pingAfter,
		DialKeepAliveTimeout: pingTimeout,
		MaxUnaryRetries:      retries,
		TLS:                  security,
		Username:             a.user,
		Password:             a.password,
		Logger:               zap.NewNop(), // what matters comes back as an error
	}
	for _, host := range a.hosts {
		config.Endpoints = append(config.Endpoints, scheme+host)
	}
	return config, nil
}

// tls is nil where none is wanted.
func (a *address) tls() (*tls.Config, error) {
	ca, cert, key := a.query.Get("ca"), a.query.Get("cert"), a.query.Get("key")
	switch text := a.query.Get("tls"); text {
	case "", "false":
		if ca != "" || cert != "" || key != "" {
			return nil, fmt.Errorf("%w: ca, cert and key are for TLS: add tls=true", ErrURL)
		}
		return nil, nil
	case "true":
	default:
		return nil, fmt.Errorf("%w: tls is %q, not true or false", ErrURL, text)
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if ca != "" {
		pem, err := os.ReadFile(ca)
		if err != nil {
			return nil, fmt.Errorf("%w: ca: %w", ErrURL, err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%w: ca: there is no certificate in %s", ErrURL, ca)
		}
	}
	if cert != "" || key != "" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return nil, fmt.Errorf("%w: cert and key: %w", ErrURL, err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

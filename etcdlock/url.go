package etcdlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/storeurl"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// ErrURL is wrapped by the errors of Open about the URL itself. They contain no password.
var ErrURL = storeurl.ErrURL

// Open returns a store with a client of its own, which Close closes.
//
//	etcd://[user:password@]host:port,host:port[/prefix]
//
// The hosts are members of one cluster; a missing port is 2379. The prefix "shop" makes keys begin
// with "shop/", as in etcdctl lock shop/orders, and replaces that of opts, which may be nil.
// Parameters of the URL: tls=true; ca=FILE, a certificate authority to trust; cert=FILE and
// key=FILE, the client's certificate.
//
// A password is written with %3F for '?', %40 for '@' and %25 for '%'. Errors contain no password.
// With a user Open asks the server whether it accepts the password; without, it makes no calls. An
// error about the URL itself wraps [ErrURL].
func Open(ctx context.Context, rawURL string, opts *Options) (*Store, error) {
	u, config, err := parseURL(rawURL)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrURL, err)
	}
	options := *cmp.Or(opts, &Options{})
	options.Prefix = prefixOf(u.Path, options.Prefix)
	location := u.Location("etcd", strings.TrimSuffix(options.Prefix, "/"))
	client, err := dial(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", location.URL, err)
	}
	store, err := New(client, &options)
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	store.owned, store.location = client, location
	return store, nil
}

// Location implements driver.Locator.
func (s *Store) Location() driver.Location { return s.location }

// prefixOf returns the prefix for the path of a URL, or else the one of the options.
func prefixOf(path, option string) string {
	if path = strings.TrimRight(path, "/"); path != "" {
		return path + "/"
	}
	return option
}

const (
	dialTimeout = 5 * time.Second // to ask for the token of a user
	// keepAliveTime is after how long a silent connection is probed: as often as gRPC allows.
	keepAliveTime    = 10 * time.Second
	keepAliveTimeout = 3 * time.Second
	// maxRetries is low: dlock tries again itself, and reports sooner what is wrong.
	maxRetries = 3
)

func parseURL(raw string) (*storeurl.URL, clientv3.Config, error) {
	config := clientv3.Config{
		DialTimeout:          dialTimeout,
		DialKeepAliveTime:    keepAliveTime,
		DialKeepAliveTimeout: keepAliveTimeout,
		MaxUnaryRetries:      maxRetries,
		Logger:               zap.NewNop(), // what matters is returned as an error
	}
	u, err := storeurl.Parse(raw, storeurl.Scheme{Name: "etcd", Port: "2379"})
	switch {
	case err != nil:
		return nil, config, err
	case (u.User == "") != (u.Password == ""):
		return nil, config, errors.New("want user:password before the '@'")
	case slices.ContainsFunc(u.Hosts, func(host string) bool { return strings.HasPrefix(host, ":") }):
		return nil, config, errors.New("a host is missing")
	}
	config.Username, config.Password = u.User, u.Password
	if config.TLS, err = u.TakeTLS(false); err != nil {
		return nil, config, err
	}
	scheme := "http://"
	if config.TLS != nil {
		scheme = "https://"
	}
	for _, host := range u.Hosts {
		config.Endpoints = append(config.Endpoints, scheme+host)
	}
	return u, config, u.Done("tls, ca, cert and key")
}

// dial makes a client. It returns soon after ctx ends.
func dial(ctx context.Context, config clientv3.Config) (*clientv3.Client, error) {
	if err := checkReachable(ctx, config); err != nil {
		return nil, explainError(err)
	}
	var interrupt context.CancelFunc
	config.Context, interrupt = context.WithCancel(context.Background())
	stop := context.AfterFunc(ctx, interrupt)
	client, err := clientv3.New(config)
	switch {
	case !stop(): // the context of the client has ended
		if err == nil {
			_ = client.Close() // it was not used
		}
		return nil, unanswered(ctx)
	case err != nil:
		return nil, explainError(err)
	}
	return client, nil
}

// checkReachable returns an error if no member can be connected to. A client with a user asks for
// its auth token at once, and if there is no connection waits for one without saying why.
func checkReachable(ctx context.Context, config clientv3.Config) error {
	if config.Username == "" {
		return nil // the client makes no calls
	}
	config.Username, config.Password = "", ""
	client, err := clientv3.New(config)
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }() // nothing was sent that matters
	_, err = pb.NewMaintenanceClient(client.ActiveConnection()).Status(ctx, &pb.StatusRequest{}, grpc.WaitForReady(false))
	if status.Code(err) == codes.Unavailable {
		return err
	}
	return nil // any other error is an answer, or the end of ctx
}

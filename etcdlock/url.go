package etcdlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dlock-go/dlock/internal/storeurl"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
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

// refusal finds out that no member can be connected to. A client with a user asks for
// its token at once and waits for a connection until its limit, without saying why there
// is none.
func refusal(ctx context.Context, config clientv3.Config) error {
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
	return nil // whatever else it says is an answer, or the end of ctx
}

// dial makes a client. It returns soon after ctx is done, though the client's own
// function does not know it.
func dial(ctx context.Context, config clientv3.Config) (*clientv3.Client, error) {
	type dialled struct {
		client *clientv3.Client
		err    error
	}
	result := make(chan dialled, 1)
	go func() {
		if err := refusal(ctx, config); err != nil {
			result <- dialled{nil, err}
			return
		}
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

// address is a URL of a store.
type address struct{ *storeurl.URL }

// ErrURL says that a URL cannot be read. The error contains no password.
var ErrURL = errors.New("bad URL")

func parseAddress(raw string) (*address, error) {
	u, err := storeurl.Parse(raw, storeurl.Scheme{Name: "etcd", Port: "2379"})
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrURL, err)
	case (u.User == "") != (u.Password == ""):
		return nil, fmt.Errorf("%w: before the '@' belong a user and a password", ErrURL)
	case slices.ContainsFunc(u.Hosts, func(host string) bool { return strings.HasPrefix(host, ":") }):
		return nil, fmt.Errorf("%w: a host is missing", ErrURL)
	}
	return &address{u}, nil
}

// prefix ends with the '/' after which names begin.
func (a *address) prefix() string {
	if path := strings.TrimRight(a.Path, "/"); path != "" {
		return path + "/"
	}
	return ""
}

func (a *address) config() (clientv3.Config, error) {
	security, err := a.TakeTLS(false)
	if err == nil {
		err = a.Done("tls, ca, cert and key")
	}
	if err != nil {
		return clientv3.Config{}, fmt.Errorf("%w: %w", ErrURL, err)
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
		Username:             a.User,
		Password:             a.Password,
		Logger:               zap.NewNop(), // what matters comes back as an error
	}
	for _, host := range a.Hosts {
		config.Endpoints = append(config.Endpoints, scheme+host)
	}
	return config, nil
}

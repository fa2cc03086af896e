package redis

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/drivertest"
	"github.com/dlock-go/dlock/redislock"
	"github.com/redis/go-redis/v9"
)

// wrapping is a hook that wraps every error, as hooks for tracing and metrics do.
type wrapping struct{}

func wrapped(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("traced: %w", err)
}

func (wrapping) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := next(ctx, network, addr)
		return conn, wrapped(err)
	}
}

func (wrapping) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error { return wrapped(next(ctx, cmd)) }
}

func (wrapping) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := wrapped(next(ctx, cmds))
		for _, cmd := range cmds {
			cmd.SetErr(wrapped(cmd.Err()))
		}
		return err
	}
}

// openWrapping opens a store whose client wraps every error. In a cluster the clients of its servers
// do so as well.
func openWrapping(url string, opts *redislock.Options) (driver.Store, error) {
	var client redis.UniversalClient
	if hosts, found := strings.CutPrefix(url, "redis+cluster://"); found {
		cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: strings.Split(hosts, ",")})
		cluster.OnNewNode(func(node *redis.Client) { node.AddHook(wrapping{}) })
		client = cluster
	} else {
		opts, err := redis.ParseURL(url)
		if err != nil {
			return nil, err
		}
		client = redis.NewClient(opts)
	}
	client.AddHook(wrapping{})
	store, err := redislock.New(client, opts)
	return &storeOfClient{store, client}, err
}

// storeOfClient closes its client too.
type storeOfClient struct {
	*redislock.Store
	client redis.UniversalClient
}

func (s *storeOfClient) Close() error {
	err := s.Store.Close()
	_ = s.client.Close() // again, it is an error
	return err
}

// TestConformanceWithAHook: a hook that wraps the errors of the client changes nothing.
func TestConformanceWithAHook(t *testing.T) {
	t.Parallel()
	top := single(t, inMemory...)
	drivertest.Run(t, drivertest.Config{
		TTL:       400 * time.Millisecond * slowdown,
		Parallel:  8 / slowdown,
		Open:      func(context.Context) (driver.Store, error) { return openWrapping(top.url, nil) },
		Leftovers: func(ctx context.Context) ([]string, error) { return leftovers(ctx, top.servers) },
	})
}

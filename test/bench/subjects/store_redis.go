package subjects

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/redislock"
	"github.com/dlock-go/dlock/redislock/redlock"
	"github.com/redis/go-redis/v9"
)

var redisStore = Store{
	Name:      "redis",
	Open:      openRedis(redislock.Redisson),
	Serve:     serveRedis,
	Processes: true,
	Held:      100_000,
	Subjects: append([]Subject{
		{Name: "raw", Open: onRedis(newRawRedis)},
		Subject{Name: "raw/pipelined", Open: onRedis(pipelined(newRawRedis))}.only("many"),
		{Name: "bare", Open: onRedis(newBareRedis(redislock.Redisson))},
		Subject{Name: "bare/pipelined", Open: onRedis(pipelined(newBareRedis(redislock.Redisson)))}.only("many"),
		{Name: "bare/plain", Open: onRedis(newBareRedis(redislock.Plain))},
		direct("store", openRedis(redislock.Redisson), millisecond).only("solo", "many"),
		direct("store/plain", openRedis(redislock.Plain), millisecond).only("solo", "many"),
		library("dlock", openRedis(redislock.Redisson)).modes(),
		library("dlock", openRedis(redislock.Redisson)).modes().exclusive(),
		library("dlock/plain", openRedis(redislock.Plain)),
		library("dlock/redlock", openRedlock).only("solo", "many", "handover", "crowd"),
		{Name: "redsync", Open: onRedis(newRedsync)},
		Subject{Name: "redsync/pipelined", Open: onRedis(pipelined(newRedsync))}.only("many"),
		{Name: "redislock", Open: onRedis(newRedislock)},
		Subject{Name: "redislock/pipelined", Open: onRedis(pipelined(newRedislock))}.only("many"),
		{Name: "rueidislock", Open: openRueidislock},
		redissonSubject,
		Subject{Name: "redsync/redlock", Open: openRedsyncRedlock}.only("solo", "many", "handover", "crowd"),
	}, commands(func(dir string) (string, error) {
		single, _, err := redisAddresses(dir)
		return "redis://" + single, err
	}, flockCommand)...),
}

func openRedis(protocol redislock.Protocol) opener {
	return func(dir string) (func(context.Context) (opened, error), error) {
		single, _, err := redisAddresses(dir)
		if err != nil {
			return nil, err
		}
		return func(context.Context) (opened, error) {
			c := redis.NewClient(&redis.Options{Addr: single, ContextTimeoutEnabled: true}) // the option of Open
			s, err := redislock.New(c, &redislock.Options{Protocol: protocol})
			if err != nil {
				return opened{}, errors.Join(err, c.Close())
			}
			return opened{s, c.Close}, nil
		}, nil
	}
}

// redlockTimeout is the time limit of a member, the same as redsync's. The
// machine is busier here than separate servers would be.
const redlockTimeout = 400 * time.Millisecond

// openRedlock opens Redlock over several independent servers.
func openRedlock(dir string) (func(context.Context) (opened, error), error) {
	_, addresses, err := redisAddresses(dir)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) (opened, error) {
		url := "redlock://" + strings.Join(addresses, ",")
		s, err := redlock.Open(ctx, url, &redlock.Options{MemberTimeout: redlockTimeout})
		return opened{s, func() error { return nil }}, err
	}, nil
}

// wrapper makes a subject's client over a client of go-redis for the server at
// addr.
type wrapper func(ctx context.Context, c redis.UniversalClient, addr string) (Client, error)

// onRedis opens a subject over go-redis with its default settings.
func onRedis(wrap wrapper) func(string) (func(context.Context) (Client, error), error) {
	return func(dir string) (func(context.Context) (Client, error), error) {
		single, _, err := redisAddresses(dir)
		if err != nil {
			return nil, err
		}
		return func(ctx context.Context) (Client, error) {
			return wrap(ctx, redis.NewClient(&redis.Options{Addr: single}), single)
		}, nil
	}
}

// pipelined lets go-redis batch the commands of several goroutines.
func pipelined(wrap wrapper) wrapper {
	return func(ctx context.Context, c redis.UniversalClient, addr string) (Client, error) {
		face, err := c.AutoPipeline()
		if err != nil {
			return nil, err
		}
		return wrap(ctx, closingBoth{face, c}, addr)
	}
}

// closingBoth is a pipeline, and the client that it belongs to.
type closingBoth struct {
	*redis.AutoPipeliner
	client redis.UniversalClient
}

func (c closingBoth) Close() error { return c.client.Close() } // closes the pipeline, too

// redisClient is the common part of the subjects over go-redis.
type redisClient struct{ redis redis.UniversalClient }

func (c *redisClient) Commands() (uint64, bool) { return 0, false } // counted by the server
func (c *redisClient) Close() error             { return c.redis.Close() }

// rawRedis is the floor: SET NX PX and DEL.
type rawRedis struct{ redisClient }

func newRawRedis(_ context.Context, c redis.UniversalClient, _ string) (Client, error) {
	return &rawRedis{redisClient{c}}, nil
}

func (c *rawRedis) Worker(_ context.Context, name string) (Worker, error) {
	return &rawRedisWorker{c.redis, name, driver.NewOwner().Hex()}, nil
}

type rawRedisWorker struct {
	redis       redis.UniversalClient
	name, owner string
}

func (w *rawRedisWorker) Lock(ctx context.Context) error {
	for {
		granted, err := w.redis.SetNX(ctx, w.name, w.owner, dlock.DefaultTTL).Result()
		if err != nil || granted {
			return err
		}
		if err := millisecond(ctx); err != nil {
			return err
		}
	}
}

func (w *rawRedisWorker) Unlock(ctx context.Context) error {
	n, err := w.redis.Del(ctx, w.name).Result()
	if err == nil && n == 0 {
		return driver.ErrNotHeld
	}
	return err
}

package subjects

import (
	"context"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/redislock"
	"github.com/dlock-go/dlock/redislock/redlock"
	"github.com/redis/go-redis/v9"
)

// The first server of a place is that of the cases with one server. The others
// are the members of Redlock.
var redisStore = Store{
	Name:      "redis",
	Open:      openRedis,
	Serve:     serveRedis,
	Processes: true,
	Held:      100_000,
	Subjects: append([]Subject{
		{Name: "raw", Open: onRedis(rawRedis)},
		Subject{Name: "raw/pipelined", Open: onRedis(pipelined(rawRedis))}.only("many"),
		{Name: "bare", Open: onRedis(bareRedis(redislock.Redisson))},
		Subject{Name: "bare/pipelined", Open: onRedis(pipelined(bareRedis(redislock.Redisson)))}.only("many"),
		{Name: "bare/plain", Open: onRedis(bareRedis(redislock.Plain))},
		direct("store", openRedis, millisecond).only("solo", "many"),
		direct("store/plain", openPlain, millisecond).only("solo", "many"),
		library("dlock", openRedis).modes(),
		library("dlock", openRedis).modes().exclusive(),
		library("dlock/plain", openPlain),
		library("dlock/redlock", openRedlock).only("solo", "many", "handover", "crowd"),
		{Name: "redsync", Open: onRedis(redsyncWorkers)},
		Subject{Name: "redsync/pipelined", Open: onRedis(pipelined(redsyncWorkers))}.only("many"),
		{Name: "redislock", Open: onRedis(redislockWorkers)},
		Subject{Name: "redislock/pipelined", Open: onRedis(pipelined(redislockWorkers))}.only("many"),
		{Name: "rueidislock", Open: openRueidislock},
		redissonSubject,
		Subject{Name: "redsync/redlock", Open: openRedsyncRedlock}.only("solo", "many", "handover", "crowd"),
	}, commands(redisURL, flockCommand)...),
}

const redisURL = "redis://SERVER"

var (
	openRedis = byURL(redislock.Open, redisURL, nil)
	openPlain = byURL(redislock.Open, redisURL+"?protocol=plain", nil)
	// The time limit of a member is the same as redsync's. The machine is busier
	// here than separate servers would be.
	openRedlock = byURL(redlock.Open, "redlock://MEMBERS?member_timeout=400ms", nil)
)

// overRedis makes the workers of a subject over a client of go-redis for the
// server at addr.
type overRedis func(ctx context.Context, c redis.UniversalClient, addr string) (func(name string) Worker, error)

// onRedis opens a subject over go-redis with its default settings. The server
// counts its commands.
func onRedis(wrap overRedis) func(context.Context, Place) (*Client, error) {
	return func(ctx context.Context, at Place) (*Client, error) {
		c := redis.NewClient(&redis.Options{Addr: at.Addrs[0]})
		newWorker, err := wrap(ctx, c, at.Addrs[0])
		if err != nil {
			_ = c.Close()
			return nil, err
		}
		return &Client{Worker: workers(newWorker), Close: c.Close}, nil // closes a pipeline, too
	}
}

// pipelined lets go-redis batch the commands of several goroutines.
func pipelined(wrap overRedis) overRedis {
	return func(ctx context.Context, c redis.UniversalClient, addr string) (func(string) Worker, error) {
		pipeline, err := c.AutoPipeline()
		if err != nil {
			return nil, err
		}
		return wrap(ctx, pipeline, addr)
	}
}

// rawRedis is the floor: SET NX PX and DEL.
func rawRedis(_ context.Context, c redis.UniversalClient, _ string) (func(string) Worker, error) {
	return func(name string) Worker {
		owner := driver.NewOwner().Hex()
		return Worker{
			Lock: polling(func(ctx context.Context) (bool, error) {
				return c.SetNX(ctx, name, owner, dlock.DefaultTTL).Result()
			}),
			Unlock: func(ctx context.Context) error {
				n, err := c.Del(ctx, name).Result()
				return released(n > 0, err)
			},
		}
	}, nil
}

package redis

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/drivertest"
	"github.com/dlock-go/dlock/redislock"
	"github.com/dlock-go/dlock/test/servers"
	"github.com/redis/go-redis/v9"
)

func TestConformance(t *testing.T) {
	for _, protocol := range []string{"redisson", "plain"} {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			server := servers.Run(t, servers.Redis)
			client := redis.NewClient(&redis.Options{Addr: server.Addr()})
			t.Cleanup(func() { client.Close() })
			conform(t, server.URL()+"?protocol="+protocol, client)
		})
	}
}

// conform runs the kit on the store with that URL. The client looks for what is
// left.
func conform(t *testing.T, url string, client redis.UniversalClient) {
	t.Helper()
	drivertest.Run(t, drivertest.Config{
		TTL:      400 * time.Millisecond,
		Parallel: 8,
		Open:     func(context.Context) (driver.Store, error) { return redislock.Open(url) },
		Worker: func() *exec.Cmd {
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), urlEnv+"="+url)
			return cmd
		},
		Leftovers: func(ctx context.Context) ([]string, error) { return leftovers(ctx, client) },
	})
}

// leftovers are all keys but the counters of tokens.
func leftovers(ctx context.Context, client redis.UniversalClient) (left []string, err error) {
	each := func(ctx context.Context, server *redis.Client) error {
		keys, err := server.Keys(ctx, "*").Result()
		for _, key := range keys {
			if !strings.HasPrefix(key, "redisson_lock_token:") && !strings.HasPrefix(key, "dlock:token:") {
				left = append(left, fmt.Sprintf("key %q", key))
			}
		}
		return err
	}
	switch c := client.(type) {
	case *redis.Client:
		err = each(ctx, c)
	default:
		err = fmt.Errorf("unknown client %T", c)
	}
	return left, err
}

package subjects

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/redislock"
	"github.com/redis/go-redis/v9"
)

// bareRedis sends the commands that dlock sends, over a client like dlock's, with
// nothing around them. It records them from dlock itself.
type bareRedis struct {
	redisClient
	recorded *recordedCommands
}

func newBareRedis(protocol redislock.Protocol) wrapper {
	return func(ctx context.Context, c redis.UniversalClient, addr string) (Client, error) {
		l, err := recordCommands(ctx, addr, protocol)
		if err != nil {
			return nil, fmt.Errorf("recording the commands of dlock: %w", err)
		}
		return &bareRedis{redisClient{c}, l}, nil
	}
}

func (c *bareRedis) Worker(_ context.Context, name string) (Worker, error) {
	owner := driver.NewOwner().Hex()
	return &bareRedisWorker{
		redis:   c.redis,
		acquire: c.recorded.lock.fill(name, owner),
		release: c.recorded.unlock.fill(name, owner),
	}, nil
}

type bareRedisWorker struct {
	redis            redis.UniversalClient
	acquire, release template
	last             uint64 // token of the grant
}

func (w *bareRedisWorker) Lock(ctx context.Context) error {
	for {
		proposed := uint64(time.Now().UnixMicro())
		replies, err := w.send(ctx, w.acquire, proposed)
		if err != nil {
			return err
		}
		granted := false
		switch reply := replies[len(replies)-1].(type) {
		case string: // the token
			w.last, err = strconv.ParseUint(reply, 10, 64)
			granted = err == nil
		case []any: // of a transaction; a held lock is another reply
			w.last, granted = proposed, slices.Contains(reply, any("OK"))
		}
		if granted {
			return nil
		}
		if err := millisecond(ctx); err != nil {
			return err
		}
	}
}

func (w *bareRedisWorker) Unlock(ctx context.Context) error {
	replies, err := w.send(ctx, w.release, w.last)
	if err == nil && replies[0] != int64(1) { // the rest of the reply is for waiters
		return driver.ErrNotHeld
	}
	return err
}

// send runs the commands and returns the replies.
func (w *bareRedisWorker) send(ctx context.Context, t template, last uint64) ([]any, error) {
	if len(t) == 1 {
		cmd := redis.NewCmd(ctx, t[0].arguments(last)...)
		_ = w.redis.Process(ctx, cmd) // the error is in the command; Do would not be pipelined
		return []any{cmd.Val()}, cmd.Err()
	}
	pipe := w.redis.Pipeline()
	cmds := make([]*redis.Cmd, len(t))
	for i, command := range t {
		cmds[i] = pipe.Do(ctx, command.arguments(last)...)
	}
	if _, err := pipe.Exec(ctx); err != nil && !errors.Is(err, redis.Nil) {
		return nil, err
	}
	replies := make([]any, len(t))
	for i, cmd := range cmds {
		replies[i] = cmd.Val()
	}
	return replies, nil
}

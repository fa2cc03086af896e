package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/redislock"
	"github.com/redis/go-redis/v9"
)

// bareRedis sends what dlock sends, over a client like dlock's, with nothing
// around it. What that is it learns from dlock itself.
type bareRedis struct {
	redisClient
	lesson *lesson
}

func newBareRedis(protocol redislock.Protocol) wrapper {
	return func(ctx context.Context, c redis.UniversalClient, addr string) (client, error) {
		l, err := learn(ctx, addr, protocol)
		if err != nil {
			return nil, fmt.Errorf("learning what dlock sends: %w", err)
		}
		return &bareRedis{redisClient{c}, l}, nil
	}
}

func (c *bareRedis) worker(_ context.Context, name string) (worker, error) {
	owner := driver.NewOwner().Hex()
	return &bareRedisWorker{
		redis: c.redis,
		take:  c.lesson.lock.fill(name, owner),
		give:  c.lesson.unlock.fill(name, owner),
	}, nil
}

type bareRedisWorker struct {
	redis      redis.UniversalClient
	take, give template
	token      string
}

func (w *bareRedisWorker) lock(ctx context.Context) error {
	for {
		proposed := strconv.FormatInt(time.Now().UnixMicro(), 10)
		replies, err := w.send(ctx, w.take, proposed)
		if err != nil {
			return err
		}
		granted := false
		switch reply := replies[len(replies)-1].(type) {
		case string: // the token
			w.token, granted = reply, true
		case []any: // of a transaction; who has the lock is told otherwise
			w.token, granted = proposed, len(reply) > 0 && reply[len(reply)-1] == "OK"
		}
		if granted {
			return nil
		}
		if err := millisecond(ctx); err != nil {
			return err
		}
	}
}

func (w *bareRedisWorker) unlock(ctx context.Context) error {
	replies, err := w.send(ctx, w.give, w.token)
	if err == nil && replies[0] != int64(1) { // what follows is for those who wait
		return driver.ErrNotHeld
	}
	return err
}

// send runs the commands and returns the replies.
func (w *bareRedisWorker) send(ctx context.Context, t template, token string) ([]any, error) {
	if len(t) == 1 {
		cmd := redis.NewCmd(ctx, t[0].arguments(token)...)
		_ = w.redis.Process(ctx, cmd) // the error is in the command; Do would not be pipelined
		return []any{cmd.Val()}, cmd.Err()
	}
	pipe := w.redis.Pipeline()
	cmds := make([]*redis.Cmd, len(t))
	for i, command := range t {
		cmds[i] = pipe.Do(ctx, command.arguments(token)...)
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

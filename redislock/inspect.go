package redislock

import (
	"context"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/redis/go-redis/v9"
)

// inspect describes those of the keys that are locks, in two round trips.
func (s *Store) inspect(ctx context.Context, keys []string) ([]driver.Info, error) {
	replies, err := s.evalInspect(ctx, keys)
	if err != nil {
		return nil, err
	}
	var infos []driver.Info
	for i, key := range keys {
		if info, ok := s.describe(key, replies[i]); ok {
			infos = append(infos, info)
		}
	}
	s.countListeners(ctx, infos)
	return infos, nil
}

// Find implements driver.Finder.
func (s *Store) Find(ctx context.Context, name string) (driver.Info, bool, error) {
	if err := s.usable(ctx); err != nil {
		return driver.Info{}, false, err
	}
	infos, err := s.inspect(ctx, []string{s.keyOf(name)})
	if err != nil || len(infos) == 0 {
		return driver.Info{}, false, err
	}
	return infos[0], true, nil
}

// evalInspect runs the script for each of the keys, all in one pipeline. A server
// that has forgotten the script is sent it once, with the first of them; in a
// cluster whose keys are just moving it may have to be sent with each.
func (s *Store) evalInspect(ctx context.Context, keys []string) ([]any, error) {
	replies := make([]any, len(keys))
	todo := make([]int, len(keys))
	for i := range keys {
		todo[i] = i
	}
	for round := 0; len(todo) > 0; round++ {
		commands := make([]redis.Cmder, len(todo))
		for n, i := range todo {
			build := s.scripts.inspect.bySHA
			if round == 1 && n == 0 || round > 1 {
				build = s.scripts.inspect.bySource
			}
			commands[n] = build(ctx, s.inspectedWith(keys[i]), nil)
		}
		if err := ask(ctx, s.route.all, commands...); err != nil {
			return nil, err
		}
		var again []int
		for n, i := range todo {
			switch err := commands[n].Err(); {
			case forgotten(err):
				again = append(again, i)
			case err != nil && strings.Contains(err.Error(), "WRONGTYPE"): // no lock
			case explain(err) != nil:
				return nil, explain(err)
			default:
				replies[i] = commands[n].(command).Val()
			}
		}
		todo = again
	}
	return replies, nil
}

// inspectedWith are the keys that tell about a lock.
func (s *Store) inspectedWith(key string) []string {
	keys := []string{key, s.counterOf(key)}
	if queue := s.queueOf(key); queue != nil {
		keys = append(keys, queue[0])
	}
	return keys
}

// redissonID is what Redisson writes: a UUID and the number of a thread.
var redissonID = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}:\d+$`)

// describe reads {mark, remaining, token, waiters}, which is nil for what
// cannot be a lock.
func (s *Store) describe(key string, reply any) (info driver.Info, ok bool) {
	fields, _ := reply.([]any)
	if len(fields) != 4 {
		return driver.Info{}, false
	}
	mark, _ := fields[0].(string)
	left, _ := fields[1].(int64)
	waiters, _ := fields[3].(int64)
	info = driver.Info{Name: nameOf(key), Remaining: remaining(left), Waiters: int(waiters)}
	info.Token, info.Holder = s.parse(mark)
	switch {
	case info.Token != 0:
		info.Since = time.UnixMicro(int64(info.Token))
	case s.protocol == Redisson && !redissonID.MatchString(mark):
		return driver.Info{}, false
	default:
		number, _ := fields[2].(string)
		info.Token, _ = strconv.ParseUint(number, 10, 64) // written by the script
	}
	return info, true
}

// countListeners counts, for locks that nobody queues for, the processes that
// wait to be woken, or did a moment ago. In a cluster only those would be counted
// that listen to the same server.
func (s *Store) countListeners(ctx context.Context, infos []driver.Info) {
	args := []any{"pubsub", "numsub"}
	var asked []*driver.Info
	for i := range infos {
		if infos[i].Waiters == 0 {
			args = append(args, s.channelOf(s.keyOf(infos[i].Name)))
			asked = append(asked, &infos[i])
		}
	}
	if s.cluster.Load() || len(asked) == 0 {
		return
	}
	cmd := command{redis.NewCmd(ctx, args...)}
	if askOne(ctx, s.route.all, cmd) != nil {
		return // unknown, as for stores that cannot tell
	}
	counts, _ := cmd.Val().([]any) // channel, number, channel, number ...
	for i, info := range asked {
		if 2*i+1 < len(counts) {
			n, _ := counts[2*i+1].(int64)
			info.Waiters = int(n)
		}
	}
}

package redislock

import (
	"context"
	"iter"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/redis/go-redis/v9"
)

// scanCount is how many keys the server scans before it serves other clients.
const scanCount = 1000

// List scans all keys of the type that locks have, which takes a while on a large server. Of other
// programs' locks it finds Redisson's, and in the plain protocol those whose name dlock has
// locked before.
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[driver.Info, error] {
	return func(yield func(driver.Info, error) bool) {
		seen := make(map[string]bool)
		for keys, err := range s.pages(ctx, prefix) {
			var infos []driver.Info
			if err == nil {
				infos, err = s.inspect(ctx, s.lockKeys(keys, prefix))
			}
			if err != nil {
				yield(driver.Info{}, err)
				return
			}
			for _, info := range infos {
				if !seen[info.Name] && !yield(info, nil) {
					return
				}
				seen[info.Name] = true
			}
		}
	}
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

// patterns returns the patterns of the keys that names with that prefix have.
func (s *Store) patterns(prefix string) []string {
	patterns := []string{literal.Replace(prefix) + "*"}
	escaped := s.clustered.Load() || strings.HasPrefix(prefix, "{")
	for _, r := range reserved {
		escaped = escaped || strings.HasPrefix(prefix, r) || strings.HasPrefix(r, prefix)
	}
	if escaped && prefix != "" {
		patterns = append(patterns, literal.Replace(escapedPrefix+escape(prefix))+"*")
	}
	return patterns
}

var literal = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`)

// pages yields the keys of all servers that may be locks, many at a time.
func (s *Store) pages(ctx context.Context, prefix string) iter.Seq2[[]string, error] {
	kind := "hash"
	if s.protocol == Plain {
		kind = "string"
	}
	return func(yield func([]string, error) bool) {
		err := s.usable(ctx)
		var servers []*sender
		if err == nil {
			servers, err = s.servers(ctx)
		}
		if err != nil {
			yield(nil, err)
		}
		for _, server := range servers {
			for _, pattern := range s.patterns(prefix) {
				for cursor, last := uint64(0), false; !last; {
					cmd := redis.NewScanCmd(ctx, nil, "scan", cursor, "match", pattern, "count", scanCount, "type", kind)
					err := askOne(ctx, server, cmd)
					var keys []string
					if err == nil {
						keys, cursor = cmd.Val()
					}
					last = cursor == 0
					if !yield(keys, err) || err != nil {
						return
					}
				}
			}
		}
	}
}

// lockKeys keeps the keys that a name with that prefix has. In a cluster that excludes keys
// which are not in the slot of their counter.
func (s *Store) lockKeys(keys []string, prefix string) []string {
	kept := keys[:0]
	for _, key := range keys {
		if name := nameOf(key); strings.HasPrefix(name, prefix) && s.keyOf(name) == key {
			kept = append(kept, key)
		}
	}
	return kept
}

// inspect describes the keys that are locks, in two round trips.
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

// evalInspect runs the script for each key, all in one pipeline. To a server that does not know
// the script it is sent once, with the first key. In a cluster whose keys are being moved it may
// have to be sent with each.
func (s *Store) evalInspect(ctx context.Context, keys []string) ([]any, error) {
	replies := make([]any, len(keys))
	todo := make([]int, len(keys))
	for i := range keys {
		todo[i] = i
	}
	for round := 0; len(todo) > 0; round++ {
		commands := make([]redis.Cmder, len(todo))
		for n, i := range todo {
			known := round == 0 || round == 1 && n > 0
			commands[n] = s.scripts.inspect.command(ctx, known, s.inspectedKeys(keys[i]), nil)
		}
		if err := ask(ctx, s.route.all, commands...); err != nil {
			return nil, err
		}
		var again []int
		for n, i := range todo {
			switch err := commands[n].Err(); {
			case isUnknownScript(err):
				again = append(again, i)
			case err != nil && strings.Contains(err.Error(), "WRONGTYPE"): // not a lock
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

// inspectedKeys returns the lock, its counter and the list of its queue.
func (s *Store) inspectedKeys(key string) []string {
	keys := []string{key, s.counterOf(key)}
	if queue := s.queueOf(key); queue != nil {
		keys = append(keys, queue[0])
	}
	return keys
}

// redissonID is what Redisson writes: a UUID and the number of a thread.
var redissonID = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}:\d+$`)

// describe reads {holder value, remaining, token, waiters}. ok is false if the key is not a lock.
func (s *Store) describe(key string, reply any) (info driver.Info, ok bool) {
	fields, _ := reply.([]any)
	if len(fields) != 4 {
		return driver.Info{}, false
	}
	value, _ := fields[0].(string)
	left, _ := fields[1].(int64)
	waiters, _ := fields[3].(int64)
	info = driver.Info{Name: nameOf(key), Remaining: remaining(left), Waiters: int(waiters)}
	info.Token, info.Holder = s.parseHolderValue(value)
	switch {
	case info.Token != 0:
		info.Since = time.UnixMicro(int64(info.Token))
	case s.protocol == Redisson && !redissonID.MatchString(value):
		return driver.Info{}, false
	default:
		number, _ := fields[2].(string)
		info.Token, _ = strconv.ParseUint(number, 10, 64) // written by the script
	}
	return info, true
}

// countListeners counts, for locks without a queue, the processes that are subscribed to the
// lock's channel: they wait, or waited a moment ago. In a cluster each server counts only its own
// connections.
func (s *Store) countListeners(ctx context.Context, infos []driver.Info) {
	args := []any{"pubsub", "numsub"}
	for _, info := range infos {
		args = append(args, s.channelOf(s.keyOf(info.Name)))
	}
	cmd := redis.NewMapStringIntCmd(ctx, args...)
	if s.clustered.Load() || len(infos) == 0 || askOne(ctx, s.route.all, cmd) != nil {
		return // unknown, as for stores that cannot count waiters
	}
	for i := range infos {
		if infos[i].Waiters == 0 {
			infos[i].Waiters = int(cmd.Val()[s.channelOf(s.keyOf(infos[i].Name))])
		}
	}
}

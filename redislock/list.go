package redislock

import (
	"context"
	"iter"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/redis/go-redis/v9"
)

// scanCount is how many keys the server scans before it serves other clients.
const scanCount = 1000

// List scans all keys of the type that locks have, which takes a while on a large server. It finds
// Redisson's locks and, in the plain protocol, other programs' locks of names that dlock has locked.
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[driver.Info, error] {
	return func(yield func(driver.Info, error) bool) {
		seen := make(map[string]bool)
		err := s.scan(ctx, prefix, func(keys []string) (more bool, err error) {
			infos, err := s.inspect(ctx, s.lockKeys(keys, prefix))
			for _, info := range infos {
				if !seen[info.Name] && !yield(info, nil) {
					return false, nil
				}
				seen[info.Name] = true
			}
			return true, err
		})
		if err != nil {
			yield(driver.Info{}, err)
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
	overlaps := func(r string) bool { return strings.HasPrefix(r, prefix) || strings.HasPrefix(prefix, r) }
	if prefix != "" && (s.clustered.Load() || strings.HasPrefix(prefix, "{") || slices.ContainsFunc(reserved, overlaps)) {
		patterns = append(patterns, literal.Replace(escapedPrefix+escapes.Replace(prefix))+"*")
	}
	return patterns
}

var literal = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`)

// scan calls page with the keys of all servers that may be locks, many at a time, while page
// returns true.
func (s *Store) scan(ctx context.Context, prefix string, page func(keys []string) (more bool, err error)) error {
	if err := s.usable(ctx); err != nil {
		return err
	}
	servers, err := s.servers(ctx)
	if err != nil {
		return err
	}
	kind := [...]string{Redisson: "hash", Plain: "string"}[s.protocol]
	for _, server := range servers {
		for _, pattern := range s.patterns(prefix) {
			for cursor, last := uint64(0), false; !last; last = cursor == 0 {
				cmd := redis.NewScanCmd(ctx, nil, "scan", cursor, "match", pattern, "count", scanCount, "type", kind)
				if err := askOne(ctx, server, cmd); err != nil {
					return err
				}
				var keys []string
				keys, cursor = cmd.Val()
				if more, err := page(keys); !more || err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// lockKeys keeps the keys that a name with that prefix has. In a cluster that excludes keys
// which are not in the slot of their counter.
func (s *Store) lockKeys(keys []string, prefix string) []string {
	return slices.DeleteFunc(keys, func(key string) bool {
		name := nameOf(key)
		return !strings.HasPrefix(name, prefix) || s.keyOf(name) != key
	})
}

// inspect describes the keys that are locks, in two round trips.
func (s *Store) inspect(ctx context.Context, keys []string) (infos []driver.Info, err error) {
	runs := make([]*scriptRun, len(keys))
	for i, key := range keys {
		runs[i] = &scriptRun{keys: []string{key, s.counterOf(key)}}
		if s.protocol == Redisson {
			runs[i].keys = append(runs[i].keys, beside(queuePrefix, key))
		}
	}
	err = whileWaiting(ctx, s.route.all, func() error {
		s.route.evalAll(ctx, s.route.all, s.scripts.inspect, runs)
		return nil
	})
	if err != nil {
		return nil, err
	}
	for i, run := range runs {
		if run.err != nil {
			return nil, noAnswer(run.err)
		}
		switch err := run.cmd.Err(); {
		case err != nil && strings.Contains(err.Error(), "WRONGTYPE"): // not a lock
		case explain(err) != nil:
			return nil, explain(err)
		default:
			if info, ok := s.describe(keys[i], run.cmd.Val()); ok {
				infos = append(infos, info)
			}
		}
	}
	s.countListeners(ctx, infos)
	return infos, nil
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

// countListeners counts the subscribers of a lock without a queue: processes that wait, or waited a
// moment ago. In a cluster they are unknown: each server counts only its own connections.
func (s *Store) countListeners(ctx context.Context, infos []driver.Info) {
	args := []any{"pubsub", "numsub"}
	for _, info := range infos {
		args = append(args, s.channelOf(s.keyOf(info.Name)))
	}
	cmd := redis.NewMapStringIntCmd(ctx, args...)
	if s.clustered.Load() || len(infos) == 0 || askOne(ctx, s.route.all, cmd) != nil {
		return
	}
	for i := range infos {
		if infos[i].Waiters == 0 {
			infos[i].Waiters = int(cmd.Val()[s.channelOf(s.keyOf(infos[i].Name))])
		}
	}
}

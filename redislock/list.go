package redislock

import (
	"cmp"
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
// Redisson's locks and, in the plain protocol, other programs' locks of names that dlock has used.
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[driver.Info, error] {
	return func(yield func(driver.Info, error) bool) {
		type hold struct {
			name  string
			token uint64
		}
		seen := make(map[hold]bool)
		err := s.scan(ctx, prefix, func(keys []string) (more bool, err error) {
			infos, err := s.inspect(ctx, s.lockKeys(keys, prefix), false)
			for _, info := range infos {
				if id := (hold{info.Name, info.Token}); !seen[id] {
					seen[id] = true
					if !yield(info, nil) {
						return false, nil
					}
				}
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
	if err := s.begin(ctx); err != nil {
		return driver.Info{}, false, err
	}
	infos, err := s.inspect(ctx, []string{s.keyOf(name)}, true)
	if err != nil || len(infos) == 0 {
		return driver.Info{}, false, err
	}
	return slices.MinFunc(infos, func(a, b driver.Info) int { return cmp.Compare(a.Token, b.Token) }), true, nil
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
	if err := s.begin(ctx); err != nil {
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
				if err := query(ctx, server, cmd); err != nil {
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
// which are not in the hash slot of their counter.
func (s *Store) lockKeys(keys []string, prefix string) []string {
	return slices.DeleteFunc(keys, func(key string) bool {
		name := nameOf(key)
		return !strings.HasPrefix(name, prefix) || s.keyOf(name) != key
	})
}

// inspect describes the keys that are locks, in two round trips. named says that the caller asked for
// the names of the keys.
func (s *Store) inspect(ctx context.Context, keys []string, named bool) (infos []driver.Info, err error) {
	runs := make([]*scriptRun, len(keys))
	for i, key := range keys {
		runs[i] = &scriptRun{keys: []string{key, s.counterOf(key)}, args: []any{named}}
		if s.protocol == Redisson {
			runs[i].keys = append(runs[i].keys, derivedKey(queuePrefix, key))
		}
	}
	err = runReadOnly(ctx, s.route.viaClient, func() error {
		s.route.evalAll(ctx, s.route.viaClient, s.scripts.inspect, runs)
		return nil
	})
	if err != nil {
		return nil, err
	}
	for _, run := range runs {
		if run.err != nil {
			return nil, noAnswer(run.err)
		}
		switch err := run.cmd.Err(); {
		case hasCode(err, "WRONGTYPE"): // not a lock
		case explain(err) != nil:
			return nil, explain(err)
		default:
			infos = append(infos, s.describe(run.keys[0], run.cmd.Val())...)
		}
	}
	s.countSubscribers(ctx, infos)
	return infos, nil
}

// redissonID is what Redisson writes: a UUID and the number of a thread, which may be negative.
var redissonID = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}:-?\d+(:write)?$`)

// describe reads {waiters, mode}, and then {holder value, remaining, token} of each holder. It
// returns nothing if the key is not a lock.
func (s *Store) describe(key string, reply any) (infos []driver.Info) {
	fields, _ := reply.([]any)
	if len(fields) < 2 {
		return nil
	}
	waiters, _ := fields[0].(int64)
	mode, _ := fields[1].(string)
	for one := range slices.Chunk(fields[2:], 3) {
		value, _ := one[0].(string)
		left, _ := one[1].(int64)
		info := driver.Info{Name: nameOf(key), Mode: parseMode(mode), Remaining: remaining(left), Waiters: int(waiters)}
		info.Token, info.Holder = s.parseHolderValue(value)
		switch {
		case info.Token != 0:
			info.Since = time.UnixMicro(int64(info.Token))
			if time.Until(info.Since) > time.Hour { // more than clocks differ: the token was raised
				info.Since = time.Time{}
			}
		case s.protocol == Redisson && !redissonID.MatchString(value):
			continue
		default:
			number, _ := one[2].(string)
			info.Token, _ = strconv.ParseUint(number, 10, 64) // written by the script
		}
		infos = append(infos, info)
	}
	return infos
}

// countSubscribers counts the subscribers of each lock without a queue: processes that wait, or
// waited a moment ago. In a cluster they are unknown: each server counts only its own connections.
func (s *Store) countSubscribers(ctx context.Context, infos []driver.Info) {
	args := []any{"pubsub", "numsub"}
	for _, info := range infos {
		args = append(args, s.channelOf(s.keyOf(info.Name)))
	}
	cmd := redis.NewMapStringIntCmd(ctx, args...)
	if s.clustered.Load() || len(infos) == 0 || query(ctx, s.route.viaClient, cmd) != nil {
		return
	}
	for i := range infos {
		if infos[i].Waiters == 0 {
			infos[i].Waiters = int(cmd.Val()[s.channelOf(s.keyOf(infos[i].Name))])
		}
	}
}

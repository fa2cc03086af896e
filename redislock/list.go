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

// scanCount is how many keys the server looks at before it serves others.
const scanCount = 1000

// List looks through all keys of the type that locks have, which takes a while on
// a large server. Of other programs' locks it finds Redisson's, and in the plain
// protocol those whose name dlock has locked before.
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[driver.Info, error] {
	return func(yield func(driver.Info, error) bool) {
		if err := s.usable(ctx); err != nil {
			yield(driver.Info{}, err)
			return
		}
		seen := make(map[string]bool)
		more := true
		err := s.eachServer(ctx, func(ctx context.Context, server redis.UniversalClient) error {
			for _, pattern := range s.patterns(prefix) {
				if err := s.scan(ctx, server, pattern, func(info driver.Info) bool {
					if !strings.HasPrefix(info.Name, prefix) || seen[info.Name] {
						return true
					}
					seen[info.Name] = true
					more = yield(info, nil)
					return more
				}); err != nil || !more {
					return err
				}
			}
			return nil
		})
		if err != nil && more {
			yield(driver.Info{}, explain(err))
		}
	}
}

// eachServer calls f for each server that has keys, one after the other.
func (s *Store) eachServer(ctx context.Context, f func(context.Context, redis.UniversalClient) error) error {
	cluster, ok := s.client.(clusterClient)
	if !ok {
		return f(ctx, s.client)
	}
	servers := make(chan *redis.Client)
	found := make(chan error, 1)
	done := make(chan struct{})
	go func() {
		found <- cluster.ForEachMaster(ctx, func(_ context.Context, server *redis.Client) error {
			select {
			case servers <- server:
			case <-done:
			}
			return nil
		})
		close(servers)
	}()
	defer close(done)
	for server := range servers {
		if err := f(ctx, server); err != nil {
			return err
		}
	}
	return <-found
}

// patterns are those of the keys that names with that prefix may have.
func (s *Store) patterns(prefix string) []string {
	patterns := []string{literal.Replace(prefix) + "*"}
	escaped := s.cluster
	for _, r := range reserved {
		escaped = escaped || strings.HasPrefix(prefix, r) || strings.HasPrefix(r, prefix)
	}
	if escaped && prefix != "" {
		patterns = append(patterns, literal.Replace(escapedPrefix+escape(prefix))+"*")
	}
	return patterns
}

var literal = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`)

func (s *Store) scan(ctx context.Context, server redis.UniversalClient, pattern string, each func(driver.Info) bool) error {
	kind := "hash"
	if s.protocol == Plain {
		kind = "string"
	}
	var cursor uint64
	for {
		keys, next, err := server.ScanType(ctx, cursor, pattern, scanCount, kind).Result()
		if err != nil {
			return err
		}
		for _, key := range keys {
			info, ok, err := s.inspect(ctx, key)
			if err != nil {
				return err
			}
			if ok && !each(info) {
				return nil
			}
		}
		if cursor = next; cursor == 0 {
			return nil
		}
	}
}

// redissonID is what Redisson writes: a UUID and the number of a thread.
var redissonID = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}:\d+$`)

// inspect describes the lock with that key, if it is one.
func (s *Store) inspect(ctx context.Context, key string) (info driver.Info, ok bool, err error) {
	keys := []string{key, s.counterOf(key)}
	if queue := s.queueOf(key); queue != nil {
		keys = append(keys, queue[0])
	}
	reply, err := s.evalUnacknowledged(ctx, s.scripts.inspect, keys)
	fields, _ := reply.([]any)
	if err != nil || len(fields) != 4 {
		return driver.Info{}, false, err
	}
	mark, _ := fields[0].(string)
	left, _ := fields[1].(int64)
	waiters, _ := fields[3].(int64)
	info = driver.Info{Name: nameOf(key), Remaining: remaining(left), Waiters: int(waiters)}
	if info.Waiters == 0 {
		info.Waiters = s.listeners(ctx, key)
	}
	info.Token, info.Holder = s.parse(mark)
	switch {
	case info.Token != 0:
		info.Since = time.UnixMicro(int64(info.Token))
	case s.protocol == Redisson && !redissonID.MatchString(mark):
		return driver.Info{}, false, nil
	default:
		last, _ := fields[2].(string)
		n, _ := strconv.ParseFloat(last, 64)
		info.Token = uint64(n)
	}
	return info, true, nil
}

// listeners counts the processes that wait to be woken, or did a moment ago. In a
// cluster only those would be counted that listen to the same server.
func (s *Store) listeners(ctx context.Context, key string) int {
	if s.cluster {
		return 0
	}
	channel := s.channelOf(key)
	n, err := s.client.PubSubNumSub(ctx, channel).Result()
	if err != nil {
		return 0 // unknown, as for stores that cannot tell
	}
	return int(n[channel])
}

package redislock

import (
	"context"
	"fmt"
	"iter"
	"strings"

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
		err := s.list(ctx, prefix, func(info driver.Info) bool { return yield(info, nil) })
		if err != nil {
			yield(driver.Info{}, err)
		}
	}
}

// list calls found for each lock, until that returns false.
func (s *Store) list(ctx context.Context, prefix string, found func(driver.Info) bool) error {
	if err := s.usable(ctx); err != nil {
		return err
	}
	servers, err := s.servers(ctx)
	if err != nil {
		return err
	}
	seen := make(map[string]bool)
	for _, server := range servers {
		for _, pattern := range s.patterns(prefix) {
			for keys, err := range s.pages(ctx, server, pattern) {
				if err != nil {
					return err
				}
				infos, err := s.inspect(ctx, s.lockKeys(keys, prefix))
				if err != nil {
					return err
				}
				for _, info := range infos {
					if seen[info.Name] {
						continue
					}
					seen[info.Name] = true
					if !found(info) {
						return nil
					}
				}
			}
		}
	}
	return nil
}

// lockKeys leaves out the keys that no name with that prefix has: in a cluster,
// for example, those that could not be read together with what belongs to them.
func (s *Store) lockKeys(keys []string, prefix string) []string {
	kept := keys[:0]
	for _, key := range keys {
		if name := nameOf(key); strings.HasPrefix(name, prefix) && s.keyOf(name) == key {
			kept = append(kept, key)
		}
	}
	return kept
}

// patterns are those of the keys that names with that prefix may have.
func (s *Store) patterns(prefix string) []string {
	patterns := []string{literal.Replace(prefix) + "*"}
	escaped := s.cluster.Load() || strings.HasPrefix(prefix, "{")
	for _, r := range reserved {
		escaped = escaped || strings.HasPrefix(prefix, r) || strings.HasPrefix(r, prefix)
	}
	if escaped && prefix != "" {
		patterns = append(patterns, literal.Replace(escapedPrefix+escape(prefix))+"*")
	}
	return patterns
}

var literal = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`)

// pages yields the keys of a server that match, many at a time. An error is the
// last thing it yields.
func (s *Store) pages(ctx context.Context, from server, pattern string) iter.Seq2[[]string, error] {
	kind := "hash"
	if s.protocol == Plain {
		kind = "string"
	}
	return func(yield func([]string, error) bool) {
		cursor := "0"
		for {
			cmd := command{redis.NewCmd(ctx, "scan", cursor, "match", pattern, "count", scanCount, "type", kind)}
			var keys []string
			err := askOne(ctx, from.sender, cmd)
			if err == nil {
				cursor, keys, err = readPage(cmd.Val())
			}
			if !yield(keys, err) || err != nil || cursor == "0" {
				return
			}
		}
	}
}

// readPage reads {cursor, {key, key, ...}}.
func readPage(reply any) (cursor string, keys []string, err error) {
	fields, _ := reply.([]any)
	if len(fields) != 2 {
		return "", nil, fmt.Errorf("%w: %v to SCAN", errReply, reply)
	}
	cursor, isText := fields[0].(string)
	found, isList := fields[1].([]any)
	if !isText || !isList {
		return "", nil, fmt.Errorf("%w: %v to SCAN", errReply, reply)
	}
	for _, key := range found {
		text, _ := key.(string)
		keys = append(keys, text)
	}
	return cursor, keys, nil
}

package redislock

import (
	"net/url"
	"slices"
	"strings"
)

// A lock's key is its name, so that other programs share it. The lock's counter, channel and
// queue are named after the key. A name is escaped only where that would not work.
const (
	escapedPrefix = "dlock:name:"
	queuePrefix   = "redisson_lock_queue"
	timeoutPrefix = "redisson_lock_timeout"
)

var (
	counterPrefix = [...]string{Redisson: "redisson_lock_token", Plain: "dlock:token"}
	channelPrefix = [...]string{Redisson: "redisson_lock__channel", Plain: "dlock:channel"}

	// reserved are the beginnings of keys that are not locks.
	reserved = []string{"dlock:", "redisson_lock_token:", "redisson_lock_queue:", "redisson_lock_timeout:", "redisson_unlock_latch:"}
)

func (s *Store) keyOf(name string) string {
	if !isReserved(name) && !isBraced(name) && (!s.clustered.Load() || keepsSlot(name)) {
		return name
	}
	return escapedPrefix + escape(name)
}

// nameOf is the reverse of keyOf.
func nameOf(key string) string {
	text, escaped := strings.CutPrefix(key, escapedPrefix)
	if !escaped {
		return key
	}
	name, err := url.PathUnescape(text)
	if err != nil {
		return key // not written by keyOf
	}
	return name
}

func isReserved(name string) bool {
	return slices.ContainsFunc(reserved, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}

// isBraced reports whether a name is {a}, which by Redisson's rule has the counter, the channel
// and the queue of a. dlock does not share such locks with Redisson. It shares names such as {a}b.
func isBraced(name string) bool {
	inner, braced := strings.CutPrefix(name, "{")
	inner, closed := strings.CutSuffix(inner, "}")
	return braced && closed && inner != "" && !strings.Contains(inner, "{")
}

// keepsSlot reports whether the name and the keys named after it are in one slot of a cluster.
func keepsSlot(name string) bool {
	before, after, braced := strings.Cut(name, "{")
	if !braced {
		return !strings.Contains(before, "}")
	}
	return strings.Index(after, "}") > 0
}

var braces = strings.NewReplacer("%", "%25", "{", "%7B", "}", "%7D")

func escape(name string) string { return braces.Replace(name) }

// hashTag returns the part of a key that decides its slot in a cluster.
func hashTag(key string) string {
	if _, after, found := strings.Cut(key, "{"); found {
		if tag, _, closed := strings.Cut(after, "}"); closed && tag != "" {
			return tag
		}
	}
	return key
}

// beside returns the name of what belongs to a key. By Redisson's rule it is in the key's slot.
func beside(prefix, key string) string {
	if strings.Contains(key, "{") {
		return prefix + ":" + key
	}
	return prefix + ":{" + key + "}"
}

func (s *Store) counterOf(key string) string { return beside(counterPrefix[s.protocol], key) }

func (s *Store) channelOf(key string) string { return beside(channelPrefix[s.protocol], key) }

// queueOf returns the keys of the queue. The plain protocol has no queue.
func (s *Store) queueOf(key string) []string {
	if s.protocol == Plain {
		return nil
	}
	return []string{beside(queuePrefix, key), beside(timeoutPrefix, key)}
}

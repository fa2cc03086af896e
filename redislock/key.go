package redislock

import (
	"net/url"
	"slices"
	"strings"

	"github.com/dlock-go/dlock/driver"
)

// A lock's key is its name, so that other programs share it. The lock's counter, channel and
// queue are named after the key. A name is escaped only where that would not work.
const (
	escapedPrefix = "dlock:name:"
	queuePrefix   = "redisson_lock_queue"
	timeoutPrefix = "redisson_lock_timeout"
	writersPrefix = "dlock:writers"
	guardPrefix   = "dlock:none"
	javaRWPrefix  = "redisson_rwlock"
)

var (
	counterPrefix = [...]string{Redisson: "redisson_lock_token", Plain: "dlock:token"}
	channelPrefix = [...]string{Redisson: "redisson_lock__channel", Plain: "dlock:channel"}

	// reserved are the beginnings of keys that are not locks.
	reserved = []string{"dlock:", "redisson_lock_token:", "redisson_lock_queue:", "redisson_lock_timeout:", "redisson_unlock_latch:"}
)

func (s *Store) keyOf(name string) string {
	isReserved := slices.ContainsFunc(reserved, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
	if !isReserved && !isBraced(name) && (!s.clustered.Load() || sameHashSlot(name)) {
		return name
	}
	return escapedPrefix + escapes.Replace(name)
}

// nameOf is the reverse of keyOf.
func nameOf(key string) string {
	if text, escaped := strings.CutPrefix(key, escapedPrefix); escaped {
		if name, err := url.PathUnescape(text); err == nil {
			return name
		}
	}
	return key
}

// isBraced reports whether a name is {a}, which by Redisson's rule has the counter, the channel
// and the queue of a. dlock does not share such locks with Redisson. It shares names such as {a}b.
func isBraced(name string) bool {
	inner, braced := strings.CutPrefix(name, "{")
	inner, closed := strings.CutSuffix(inner, "}")
	return braced && closed && inner != "" && !strings.Contains(inner, "{")
}

// sameHashSlot reports whether the name and the keys named after it are in one hash slot.
func sameHashSlot(name string) bool {
	_, after, braced := strings.Cut(name, "{")
	return strings.Index(after, "}") > 0 || !braced && !strings.Contains(name, "}")
}

var escapes = strings.NewReplacer("%", "%25", "{", "%7B", "}", "%7D")

// hashTag returns the part of a key that decides its hash slot.
func hashTag(key string) string {
	_, after, _ := strings.Cut(key, "{")
	if tag, _, closed := strings.Cut(after, "}"); closed && tag != "" {
		return tag
	}
	return key
}

// derivedKey returns the name of a key or channel that belongs to a lock. By Redisson's rule it is
// in the hash slot of the lock.
func derivedKey(prefix, key string) string { return prefix + ":" + tagged(key) }

// tagged returns a key with its hash tag.
func tagged(key string) string {
	if strings.Contains(key, "{") {
		return key
	}
	return "{" + key + "}"
}

func (s *Store) counterOf(key string) string { return derivedKey(counterPrefix[s.protocol], key) }

func (s *Store) channelOf(key string) string { return derivedKey(channelPrefix[s.protocol], key) }

// javaRWChannelOf returns the channel on which Redisson's RReadWriteLock publishes.
func javaRWChannelOf(key string) string { return derivedKey(javaRWPrefix, key) }

// queueOf returns the keys of the queue: its waiters, their timeouts, and writers, the set of
// exclusive waiters that are not in it; then the guard, in a cluster. It is empty for Plain.
func (s *Store) queueOf(key string) []string {
	if s.protocol == Plain {
		return nil
	}
	queue := []string{derivedKey(queuePrefix, key), derivedKey(timeoutPrefix, key), derivedKey(writersPrefix, key)}
	return append(queue, s.guardOf(key)...)
}

// guardOf returns a key that never exists, for scripts that remove expired shares. While a hash
// slot moves between two servers, each of them refuses a script with a key that it does not have.
// Without the guard, a script could find the lock but not the key of a share, and remove the share
// as expired. Without a cluster there is no guard.
func (s *Store) guardOf(key string) []string {
	if s.protocol == Plain || !s.clustered.Load() {
		return nil
	}
	return []string{derivedKey(guardPrefix, key)}
}

// shareOf returns the key that expires with the share of an owner: see share_key in redisson.lua.
func shareOf(key string, owner driver.Owner) string {
	return tagged(key) + ":" + owner.Hex() + ":rwlock_timeout:1"
}

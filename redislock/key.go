package redislock

import (
	"net/url"
	"strings"
)

// A lock's key is its name, as Redisson and the others have it, so that they
// share it. What else belongs to the lock is named after the key. Names are
// escaped only where that would not work.
const (
	escapedPrefix = "dlock:name:"

	redissonCounter  = "redisson_lock_token"
	redissonChannel  = "redisson_lock__channel"
	redissonQueue    = "redisson_lock_queue"
	redissonTimeouts = "redisson_lock_timeout"
	redissonLatch    = "redisson_unlock_latch"

	plainCounter = "dlock:token"
	plainChannel = "dlock:channel"
)

// reserved are the beginnings of keys that are not locks.
var reserved = []string{"dlock:", redissonCounter + ":", redissonQueue + ":", redissonTimeouts + ":", redissonLatch + ":"}

// keyOf returns the key of a name.
func (s *Store) keyOf(name string) string {
	if !isReserved(name) && !sharesAll(name) && (!s.cluster.Load() || keepsSlot(name)) {
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
	for _, prefix := range reserved {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// sharesAll says whether what belongs to the name would belong to another one as
// well: by Redisson's rule {a} has the counter, the channel and the queue of a.
// Redisson's own locks with such a name are not shared. Names such as {a}b are.
func sharesAll(name string) bool {
	inner, braced := strings.CutPrefix(name, "{")
	inner, closed := strings.CutSuffix(inner, "}")
	return braced && closed && inner != "" && !strings.Contains(inner, "{")
}

// keepsSlot says whether the name and the keys named after it live in the same
// slot of a cluster.
func keepsSlot(name string) bool {
	before, after, braced := strings.Cut(name, "{")
	if !braced {
		return !strings.Contains(before, "}")
	}
	return strings.Index(after, "}") > 0
}

var braces = strings.NewReplacer("%", "%25", "{", "%7B", "}", "%7D")

func escape(name string) string { return braces.Replace(name) }

// beside returns the name of what belongs to a key, by Redisson's rule: in the
// same slot of a cluster.
func beside(prefix, key string) string {
	if strings.Contains(key, "{") {
		return prefix + ":" + key
	}
	return prefix + ":{" + key + "}"
}

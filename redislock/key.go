package redislock

import (
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/dlock-go/dlock/driver"
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
	isReserved := slices.ContainsFunc(reserved, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
	if !isReserved && !isBraced(name) && (!s.clustered.Load() || keepsSlot(name)) {
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

// keepsSlot reports whether the name and the keys named after it are in one slot of a cluster.
func keepsSlot(name string) bool {
	_, after, braced := strings.Cut(name, "{")
	return strings.Index(after, "}") > 0 || !braced && !strings.Contains(name, "}")
}

var escapes = strings.NewReplacer("%", "%25", "{", "%7B", "}", "%7D")

// hashTag returns the part of a key that decides its slot in a cluster.
func hashTag(key string) string {
	_, after, _ := strings.Cut(key, "{")
	if tag, _, closed := strings.Cut(after, "}"); closed && tag != "" {
		return tag
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

// A holder value is what a lock stores about its holder: OWNER:TOKEN:HOLDER. It is the ID of
// Redisson's protocol and the string of the plain one. Other programs do not parse it.

// ownerPrefix begins every holder value of an owner.
func ownerPrefix(o driver.Owner) string { return o.Hex() + ":" }

// grantPrefix begins the holder value of a grant: only the holder's description is missing.
func grantPrefix(o driver.Owner, token uint64) string {
	var buf [32 + 1 + 20 + 1]byte
	b := append(buf[:0], o.Hex()...)
	b = append(b, ':')
	b = strconv.AppendUint(b, token, 10)
	return string(append(b, ':'))
}

// parseHolderValue returns the token and the holder. A value that another program wrote has no
// token, and becomes the holder's note. In the plain protocol it is that program's secret, and
// the holder stays empty.
func (s *Store) parseHolderValue(value string) (token uint64, holder driver.Holder) {
	owner, rest, ok := strings.Cut(value, ":")
	if ok && len(owner) == 2*len(driver.Owner{}) {
		digits, text, _ := strings.Cut(rest, ":")
		if token, err := strconv.ParseUint(digits, 10, 64); err == nil && token <= maxToken && strings.HasPrefix(text, "{") {
			return token, driver.DecodeHolder(text)
		}
	}
	if s.protocol == Plain {
		return 0, driver.Holder{}
	}
	return 0, driver.Holder{Note: value}
}

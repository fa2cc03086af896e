package etcdlock

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/dlock-go/dlock/driver"
)

var (
	escaper   = strings.NewReplacer("%", "%25", "/", "%2F")
	unescaper = strings.NewReplacer("%25", "%", "%2F", "/")
)

// queuePrefix returns the beginning of all keys of a name: of its holders and its waiters. It ends
// with the only '/' after the store's prefix, so that it never begins that of another name.
func (s *Store) queuePrefix(name string) string { return s.prefix + escaper.Replace(name) + "/" }

// The keys of shared holders and of permits have a mark between the prefix and the ID of the
// etcd lease, which is hexadecimal. In the order of keys, all shared ones come after all others.
const (
	limitMark  = "~limit"
	sharedMark = "~shared-"
)

// markOf returns the mark of keys with that mode.
func markOf(mode driver.Mode) string {
	switch {
	case mode.Limit > 0:
		return limitMark + strconv.Itoa(mode.Limit) + "-"
	case mode.Shared:
		return sharedMark
	}
	return ""
}

// readMark returns the mode for which the mark in the last part of a key stands, and the rest.
func readMark(part string) (mode driver.Mode, rest string) {
	if rest, ok := strings.CutPrefix(part, sharedMark); ok {
		return driver.Mode{Shared: true}, rest
	}
	if marked, ok := strings.CutPrefix(part, limitMark); ok {
		number, rest, _ := strings.Cut(marked, "-")
		if limit, err := strconv.Atoi(number); err == nil && limit > 0 {
			return driver.Mode{Limit: limit}, rest
		}
	}
	return driver.Mode{}, part
}

// A downgraded lock keeps its key, and with it its place and its token. Its value begins with
// downgradedMark instead of the brace that begins a holder.
const downgradedMark = `{"dlock":"shared",`

func isDowngraded(value []byte) bool { return strings.HasPrefix(string(value), downgradedMark) }

// modeOf returns the mode of a key with that queuePrefix. The keys of other programs are exclusive.
func modeOf(prefix, key string, value []byte) driver.Mode {
	mode, _ := readMark(key[len(prefix):])
	if mode == (driver.Mode{}) {
		mode.Shared = isDowngraded(value)
	}
	return mode
}

// newKeyLocked returns a new key with that prefix: for an exclusive lock the one that etcd's own
// package would use, or if that is in use, one with a number.
func (s *Store) newKeyLocked(prefix string, mode driver.Mode, l *lease) string {
	key := prefix + markOf(mode) + strconv.FormatInt(int64(l.id), 16)
	if _, stray := l.strayKeys[key]; s.keys[key] == nil && !stray {
		return key
	}
	s.numberedKeys++
	return fmt.Sprintf("%s-%d", key, s.numberedKeys)
}

// nameOf returns the name that a key belongs to. It returns false for keys that belong to no
// lock: those that do not contain the ID of the etcd lease that they are bound to.
func (s *Store) nameOf(key string, leaseID int64) (name string, ok bool) {
	rest, ok := strings.CutPrefix(key, s.prefix)
	if !ok || leaseID == 0 {
		return "", false
	}
	escaped, holder, ok := strings.Cut(rest, "/")
	if !ok || escaped == "" {
		return "", false
	}
	_, holder = readMark(holder)
	if id, _, _ := strings.Cut(holder, "-"); id != strconv.FormatInt(leaseID, 16) {
		return "", false
	}
	name = unescaper.Replace(escaped)
	return name, escaper.Replace(name) == escaped
}

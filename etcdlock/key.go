package etcdlock

import (
	"fmt"
	"strconv"
	"strings"
)

var (
	escaper   = strings.NewReplacer("%", "%25", "/", "%2F")
	unescaper = strings.NewReplacer("%25", "%", "%2F", "/")
)

// queueOf returns the beginning of all keys of a name: of its holder and its waiters. It ends
// with the only '/' after the prefix, so that no name's queue begins with that of another.
func (s *Store) queueOf(name string) string { return s.prefix + escaper.Replace(name) + "/" }

// newKey returns a new key in a queue: the one that etcd's own package would use, or if that is
// in use, one with a number. The caller holds s.mu.
func (s *Store) newKey(queue string, l *lease) string {
	key := queue + strconv.FormatInt(int64(l.id), 16)
	if _, stray := l.strayKeys[key]; s.keys[key] == nil && !stray {
		return key
	}
	s.numberedKeys++
	return fmt.Sprintf("%s-%d", key, s.numberedKeys)
}

// nameOf returns the name that a key belongs to. It returns false for keys that belong to no
// lock: those that do not contain the ID of the lease that they are bound to.
func (s *Store) nameOf(key string, leaseID int64) (name string, ok bool) {
	rest, ok := strings.CutPrefix(key, s.prefix)
	if !ok || leaseID == 0 {
		return "", false
	}
	escaped, holder, ok := strings.Cut(rest, "/")
	if !ok || escaped == "" {
		return "", false
	}
	if id, _, _ := strings.Cut(holder, "-"); id != strconv.FormatInt(leaseID, 16) {
		return "", false
	}
	name = unescaper.Replace(escaped)
	return name, escaper.Replace(name) == escaped
}

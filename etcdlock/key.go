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

// queueOf is what the keys of all begin with who have or want the lock. It ends
// with the only '/' that is not the prefix's, so that no name's is the beginning
// of another's.
func (s *Store) queueOf(name string) string { return s.prefix + escaper.Replace(name) + "/" }

// newKey returns a key for one who wants the lock: the one that etcd's own
// package would use, or if another of this store has that, one with a number.
// s.mu is held.
func (s *Store) newKey(queue string, l *lease) string {
	key := queue + strconv.FormatInt(int64(l.id), 16)
	if _, doubted := l.trash[key]; s.keys[key] == nil && !doubted {
		return key
	}
	s.numbered++ // no number comes twice
	return fmt.Sprintf("%s-%d", key, s.numbered)
}

// nameIn takes a key of a lock apart. It returns false for keys that are none:
// those that are not called after the lease that they are bound to.
func (s *Store) nameIn(key string, id int64) (name string, ok bool) {
	rest, ok := strings.CutPrefix(key, s.prefix)
	if !ok || id == 0 {
		return "", false
	}
	escaped, place, ok := strings.Cut(rest, "/")
	if !ok || escaped == "" {
		return "", false
	}
	holder, _, _ := strings.Cut(place, "-")
	if holder != strconv.FormatInt(id, 16) {
		return "", false
	}
	name = unescaper.Replace(escaped)
	return name, escaper.Replace(name) == escaped
}

//go:build interop

package interop

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// nameOf returns a name that the tests with other versions do not use on the same
// servers.
func (s *shared) nameOf(parts ...any) string {
	return strings.ReplaceAll(strings.TrimSpace(fmt.Sprintln(append(parts, filepath.Base(s.build))...)), " ", "-")
}

// redissonExclusion checks that each excludes the other until it unlocks, for
// every kind of name.
func redissonExclusion(t *testing.T, s *shared, kind kind) {
	c := s.client(t)
	for i, name := range []string{"plain", "a/b:c", "{tag}rest", "锁"} {
		name = s.nameOf(name, kind)
		java := s.javaThread(t, kind.java, name)
		java.locks(longTTL)
		mustRefuse(t, c, name, kind.opts...)
		java.unlocks()
		lease := tryLock(t, c, name, kind.opts...)
		java.isRefused()
		if i == 0 { // Java reports an error if the wait is too short to subscribe
			if _, got := java.tries(time.Second, longTTL); got {
				t.Fatalf("Java waited and got %q, which dlock has", name)
			}
		}
		unlock(t, lease)
		java.locks(longTTL)
		java.unlocks()
	}
}

// redissonWakes checks that each wakes the waiters of the other long before
// anything expires.
func redissonWakes(t *testing.T, s *shared, kind kind) {
	c := s.client(t)
	const rounds = 12
	var toDlock, toJava []time.Duration
	for round := range rounds {
		name := s.nameOf(kind, "to-dlock", round)
		java := s.javaThread(t, kind.java, name)
		token := java.locks(longTTL)
		later := lockLater(t, c, name, kind.opts...)
		s.awaitSubscriber(t, name)
		began := java.unlocks()
		w := granted(t, later, longTTL/2)
		toDlock = append(toDlock, w.at.Sub(began))
		if w.lease.Token() <= token {
			t.Errorf("dlock has token %d after Java's %d", w.lease.Token(), token)
		}
		unlock(t, w.lease)

		name = s.nameOf(kind, "to-java", round)
		lease := tryLock(t, c, name, kind.opts...)
		java = s.javaThread(t, kind.java, name)
		java.beginLock()
		s.awaitSubscriber(t, name)
		began = time.Now()
		unlock(t, lease)
		token, at := java.gets()
		toJava = append(toJava, at.Sub(began))
		if kind.java == "fenced" && token <= lease.Token() {
			t.Errorf("Java has token %d after dlock's %d", token, lease.Token())
		}
		java.unlocks()
	}
	report(t, "Java unlocks, dlock has it", toDlock, wakeLimit)
	report(t, "dlock unlocks, Java has it", toJava, wakeLimit)
}

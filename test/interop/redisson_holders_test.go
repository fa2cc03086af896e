//go:build interop

package interop

import (
	"errors"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
)

// redissonDlockRenews checks that Java is excluded beyond the TTL of a lock that
// dlock renews.
func redissonDlockRenews(t *testing.T, s *shared) {
	const ttl = 3 * time.Second // a busy machine may delay a renewal
	lease := tryLock(t, s.client(t), "renewed", dlock.WithTTL(ttl))
	java := s.javaThread(t, "lock", "renewed")
	if _, got := java.tries(3*ttl, longTTL); got {
		t.Fatal("Java got a lock that dlock renews")
	}
	if err := lease.Context().Err(); err != nil {
		t.Errorf("dlock lost its lock while Java waited: %v", err)
	}
	unlock(t, lease)
	java.locks(longTTL)
	java.unlocks()
}

// redissonWatchdog checks that dlock is excluded for as long as Java's watchdog
// renews.
func redissonWatchdog(t *testing.T, s *shared) {
	java := s.javaThread(t, "lock", "watched")
	java.locks(0)
	limit := javaWatchdog + time.Second
	if _, err := s.client(t).Lock(t.Context(), "watched", dlock.WithWait(limit)); !errors.Is(err, dlock.ErrHeld) {
		t.Fatalf("Lock, for %v, of a lock that Java renews: %v; want ErrHeld", limit, err)
	}
	java.unlocks()
}

// redissonKilledJava checks that the lock of a killed Java process is free when
// it expires, and not before.
func redissonKilledJava(t *testing.T, s *shared) {
	victim := &shared{java: startJava(t, s.build, s.url)}
	victim.javaThread(t, "fenced", "killed").locks(0)
	later := lockLater(t, s.client(t), "killed")
	s.awaitSubscriber(t, "killed")
	victim.java.Kill()
	killed := time.Now()
	w := granted(t, later, javaWatchdog+wakeLimit)
	took := w.at.Sub(killed)
	t.Logf("%s: dlock acquired it %v after Java was killed; Java's lock lasts %v", t.Name(), took.Round(time.Millisecond), javaWatchdog)
	if renewedBefore := javaWatchdog / 3; took < javaWatchdog-renewedBefore-wakeLimit/4 {
		t.Errorf("dlock got the lock %v after Java was killed; it had been renewed for %v", took, javaWatchdog)
	}
	unlock(t, w.lease)
}

// redissonReentry checks that Java's lock is free when Java has unlocked it as
// often as it has locked it.
func redissonReentry(t *testing.T, s *shared) {
	c := s.client(t)
	java := s.javaThread(t, "lock", "re-entered")
	java.locks(longTTL)
	java.locks(longTTL)
	mustRefuse(t, c, "re-entered")
	java.unlocks()
	mustRefuse(t, c, "re-entered")
	java.unlocks()
	unlock(t, tryLock(t, c, "re-entered"))
}

// redissonForced checks that dlock notices at its next renewal that Java has
// forced its lock open.
func redissonForced(t *testing.T, s *shared) {
	const ttl = 1500 * time.Millisecond
	lease := tryLock(t, s.client(t), "forced", dlock.WithTTL(ttl))
	java := s.javaThread(t, "lock", "forced")
	java.Send("force", java.kind, java.name)
	java.Expect("forced")
	java.locks(longTTL)
	select {
	case <-lease.Context().Done():
	case <-time.After(ttl):
		t.Errorf("dlock still trusts a lock that Java holds, after %v", ttl)
	}
	if err := lease.Unlock(t.Context()); !errors.Is(err, dlock.ErrNotHeld) {
		t.Errorf("Unlock of a lock that Java holds: %v; want ErrNotHeld", err)
	}
	mustRefuse(t, s.client(t), "forced")
	java.unlocks()
}

// redissonBroken checks that dlock lists Java's lock and can break it, and that
// Java notices.
func redissonBroken(t *testing.T, s *shared) {
	c := s.client(t)
	unlock(t, tryLock(t, c, "broken")) // a name that dlock never locked has no token
	java := s.javaThread(t, "lock", "broken")
	java.locks(longTTL)
	found := 0
	for info, err := range c.Locks(t.Context(), "broken") {
		if err != nil {
			t.Fatalf("Locks: %v", err)
		}
		found++
		t.Logf("%s: Java's lock is listed as that of %v, with %v left", t.Name(), info.Holder, info.Remaining.Round(time.Second))
		if err := c.Break(t.Context(), info.Name, info.Token); err != nil {
			t.Errorf("Break(%q, %d): %v", info.Name, info.Token, err)
		}
	}
	if found != 1 {
		t.Fatalf("%d locks are listed, want that of Java", found)
	}
	lease := tryLock(t, c, "broken")
	java.Send("unlock", java.kind, java.name)
	java.Expect("error") // IllegalMonitorStateException
	mustRefuse(t, s.client(t), "broken")
	unlock(t, lease)
}

// redissonTokens checks that the tokens of Java's fenced lock and those of dlock
// are one rising series.
func redissonTokens(t *testing.T, s *shared) {
	c := s.client(t)
	java := s.javaThread(t, "fenced", "tokens")
	var tokens []uint64
	for range 4 {
		tokens = append(tokens, java.locks(longTTL))
		java.unlocks()
		lease := tryLock(t, c, "tokens")
		tokens = append(tokens, lease.Token())
		unlock(t, lease)
		fair := tryLock(t, c, "tokens", dlock.WithFair())
		tokens = append(tokens, fair.Token())
		unlock(t, fair)
	}
	for i := range tokens[1:] {
		if tokens[i+1] <= tokens[i] {
			t.Errorf("token %d after %d in %d", tokens[i+1], tokens[i], tokens)
		}
	}
	t.Logf("%s: Java, dlock, dlock fair, and so on: %d", t.Name(), tokens)
}

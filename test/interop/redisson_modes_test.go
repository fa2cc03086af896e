//go:build interop

package interop

import (
	"errors"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/redislock"
)

// redissonEveryPair checks for every mode of dlock and every kind of Redisson's locks that neither gets a
// lock that the other has, except two readers.
func redissonEveryPair(t *testing.T, s *shared) {
	c := s.client(t)
	modes := map[string][]dlock.Option{
		"exclusive": nil, "fair": {dlock.WithFair()},
		"shared": {dlock.WithShared()}, "fair shared": {dlock.WithShared(), dlock.WithFair()},
		"permit": {dlock.WithLimit(2)}, "fair permit": {dlock.WithLimit(2), dlock.WithFair()},
	}
	for mode, opts := range modes {
		for _, kind := range []string{"lock", "fenced", "fair", "read", "write"} {
			together := kind == "read" && (mode == "shared" || mode == "fair shared")
			name := s.nameOf("pair", mode, kind)
			java := s.javaThread(t, kind, name)
			java.locks(longTTL)
			lease, err := c.TryLock(t.Context(), name, opts...)
			refused := errors.Is(err, dlock.ErrHeld) || errors.Is(err, dlock.ErrMode)
			switch {
			case together && err != nil:
				t.Errorf("dlock, %s, beside Java's %s: %v", mode, kind, err)
			case !together && !refused:
				t.Errorf("dlock, %s, of a name that Java's %s has: %v; want a refusal", mode, kind, err)
			}
			if err == nil {
				unlock(t, lease)
			}
			java.unlocks()
			lease = tryLock(t, c, name, opts...)
			_, got := java.tries(0, longTTL)
			if got != together {
				t.Errorf("Java's %s got a name that dlock has, %s: %v; want %v", kind, mode, got, together)
			}
			if got {
				java.unlocks()
			}
			unlock(t, lease)
			java.locks(longTTL) // nothing is left
			java.unlocks()
		}
	}
	name := s.nameOf("strangers") // in Java alone, which is why dlock writes the layout that both refuse
	mutex, reader := s.javaThread(t, "lock", name), s.javaThread(t, "read", name)
	mutex.locks(longTTL)
	reader.locks(longTTL)
	mustRefuse(t, c, name)
	reader.Send("force", "lock", name)
	reader.Expect("forced")
}

// redissonPermitsWake checks that Java is woken when the last permit is released.
func redissonPermitsWake(t *testing.T, s *shared) {
	c := s.client(t)
	for _, kind := range []string{"lock", "read", "write"} {
		name := s.nameOf("permits", kind)
		first, second := tryLock(t, c, name, dlock.WithLimit(2)), tryLock(t, c, name, dlock.WithLimit(2))
		java := s.javaThread(t, kind, name)
		java.beginLock()
		s.awaitSubscriber(t, name)
		unlock(t, first)
		began := time.Now()
		unlock(t, second)
		_, at := java.gets()
		report(t, "dlock releases its last permit, Java has the "+kind, []time.Duration{at.Sub(began)}, wakeLimit)
		java.unlocks()
	}
}

// redissonReadersTogether checks that readers of Java and of dlock come and go without touching each other, and
// that the last one wakes a writer of either side.
func redissonReadersTogether(t *testing.T, s *shared) {
	c, name := s.client(t), s.nameOf("together")
	dlockLast, javaLast := s.nameOf("together", "dlock"), s.nameOf("together", "java")
	java, other := s.javaThread(t, "read", name), s.javaThread(t, "write", name)
	lease := tryLock(t, c, name, dlock.WithShared())
	for range 2 { // a re-entry of Java
		java.locks(longTTL)
	}
	java.unlocks()
	java.unlocks()
	other.isRefused() // the unlock of Java's reader has not ended dlock's share
	mustRefuse(t, s.client(t), name)
	if err := lease.Context().Err(); err != nil {
		t.Errorf("the lease of the reader: %v", err)
	}
	java.locks(longTTL)
	unlock(t, lease)
	other.isRefused() // nor the other way round
	mustRefuse(t, c, name)
	java.unlocks()
	other.locks(longTTL)
	other.unlocks()

	var toJava, toDlock []time.Duration
	for range 5 {
		lease, java := tryLock(t, c, dlockLast, dlock.WithShared()), s.javaThread(t, "read", dlockLast)
		java.locks(longTTL)
		writer := s.javaThread(t, "write", dlockLast)
		writer.beginLock()
		s.awaitSubscriber(t, dlockLast)
		java.unlocks()
		began := time.Now()
		unlock(t, lease)
		_, at := writer.gets()
		toJava = append(toJava, at.Sub(began))
		writer.unlocks()

		lease, java = tryLock(t, c, javaLast, dlock.WithShared()), s.javaThread(t, "read", javaLast)
		java.locks(longTTL)
		later := lockLater(t, s.client(t), javaLast)
		s.awaitChannel(t, "redisson_rwlock:{"+javaLast+"}")
		unlock(t, lease)
		began = java.unlocks()
		w := granted(t, later, longTTL/2)
		toDlock = append(toDlock, w.at.Sub(began))
		unlock(t, w.lease)
	}
	report(t, "dlock is the last reader, Java writes", toJava, wakeLimit)
	report(t, "Java is the last reader, dlock writes", toDlock, wakeLimit)
}

// redissonFairReaders checks that fair readers of dlock that follow each other in Java's queue are admitted together: Java
// notifies only the first.
func redissonFairReaders(t *testing.T, s *shared) {
	name := s.nameOf("fair-readers")
	java := s.javaThread(t, "fair", name)
	java.locks(longTTL)
	var readers []<-chan wait
	for i := range 3 {
		readers = append(readers, lockLater(t, s.client(t), name, dlock.WithShared(), dlock.WithFair()))
		s.awaitQueue(t, name, int64(i+1))
	}
	began := java.unlocks()
	var took []time.Duration
	var leases []*dlock.Lease
	for _, reader := range readers {
		w := granted(t, reader, longTTL/2)
		took, leases = append(took, w.at.Sub(began)), append(leases, w.lease)
	}
	report(t, "fair Java unlocks, fair dlock reads", took, wakeLimit)
	for _, lease := range leases {
		unlock(t, lease)
	}
	java.locks(longTTL)
	java.unlocks()
}

// redissonJavaDowngrades checks that a writer of Java that becomes a reader admits readers of dlock. Java publishes
// nothing then, so dlock polls.
func redissonJavaDowngrades(t *testing.T, s *shared) {
	const ttl = 3 * time.Second // dlock polls every third of it
	c, name := s.client(t), s.nameOf("java-downgrades")
	java := s.javaThread(t, "write", name)
	java.locks(longTTL)
	later := lockLater(t, c, name, dlock.WithShared(), dlock.WithTTL(ttl))
	s.awaitSubscriber(t, name)
	java.kind = "read"
	java.locks(longTTL)
	mustRefuse(t, s.client(t), name, dlock.WithShared())
	java.kind = "write"
	began := java.unlocks()
	w := granted(t, later, ttl+wakeLimit)
	report(t, "Java downgrades, dlock reads", []time.Duration{w.at.Sub(began)}, ttl/3+wakeLimit)
	writer := lockLater(t, s.client(t), name)
	s.awaitChannel(t, "redisson_rwlock:{"+name+"}")
	unlock(t, w.lease)
	java.kind = "read"
	began = java.unlocks()
	w = granted(t, writer, longTTL/2)
	report(t, "the downgraded Java leaves, dlock writes", []time.Duration{w.at.Sub(began)}, wakeLimit)
	unlock(t, w.lease)
}

// redissonDlockDowngrades checks that a downgrade of dlock wakes readers of Java, and no writers.
func redissonDlockDowngrades(t *testing.T, s *shared) {
	c, name := s.client(t), s.nameOf("dlock-downgrades")
	lease := tryLock(t, c, name)
	java, writer := s.javaThread(t, "read", name), s.javaThread(t, "write", name)
	java.beginLock()
	s.awaitSubscriber(t, name)
	began := time.Now()
	if err := lease.Downgrade(t.Context()); err != nil {
		t.Fatalf("Downgrade: %v", err)
	}
	_, at := java.gets()
	report(t, "dlock downgrades, Java reads", []time.Duration{at.Sub(began)}, wakeLimit)
	writer.isRefused()
	java.unlocks()
	writer.isRefused()
	unlock(t, lease)
	writer.locks(longTTL)
	writer.unlocks()
}

// redissonDeadJavaReader checks that a killed reader of Java delays a writer of dlock until its watchdog's timeout has
// passed, and takes no share of dlock with it.
func redissonDeadJavaReader(t *testing.T, s *shared) {
	victim := &shared{java: startJava(t, s.build, s.url)}
	c, name, both := s.client(t), s.nameOf("dead-java-reader"), s.nameOf("dead-java-reader", "beside")
	victim.javaThread(t, "read", name).locks(0)
	victim.javaThread(t, "read", both).locks(0)
	lease := tryLock(t, c, both, dlock.WithShared())
	later := lockLater(t, s.client(t), name)
	s.awaitChannel(t, "redisson_rwlock:{"+name+"}")
	victim.java.Kill()
	killed := time.Now()
	w := granted(t, later, javaWatchdog+wakeLimit)
	took := w.at.Sub(killed)
	t.Logf("%s: dlock acquired it %v after Java was killed; Java's share lasts %v", t.Name(), took.Round(time.Millisecond), javaWatchdog)
	if renewedBefore := javaWatchdog / 3; took < javaWatchdog-renewedBefore-wakeLimit/4 {
		t.Errorf("dlock got the lock %v after Java was killed; its share had been renewed for %v", took, javaWatchdog)
	}
	unlock(t, w.lease)
	mustRefuse(t, s.client(t), both) // dlock's reader is there
	if err := lease.Context().Err(); err != nil {
		t.Errorf("the lease of the reader beside: %v", err)
	}
	unlock(t, lease)
	unlock(t, granted(t, lockLater(t, c, both), javaWatchdog+wakeLimit).lease)
}

// redissonDeadDlockReader checks that a dead reader of dlock delays a writer of Java until its TTL has passed, also if a
// reader of Java has come and gone since.
func redissonDeadDlockReader(t *testing.T, s *shared) {
	const ttl = 2 * time.Second
	name := s.nameOf("dead-dlock-reader")
	dead := driver.Request{Name: name, Owner: driver.NewOwner(), TTL: ttl, Mode: driver.Mode{Shared: true}}
	if _, err := newStore(t, s.redis, redislock.Redisson).Acquire(t.Context(), dead); err != nil {
		t.Fatal(err)
	}
	granted := time.Now()
	reader, writer := s.javaThread(t, "read", name), s.javaThread(t, "write", name)
	reader.locks(longTTL)
	reader.unlocks()
	writer.isRefused()
	writer.beginLock()
	_, at := writer.gets()
	if took := at.Sub(granted); took < ttl-wakeLimit/4 || took > ttl+wakeLimit {
		t.Errorf("Java wrote %v after the grant of a dead reader with a TTL of %v", took, ttl)
	}
	writer.unlocks()
}

// redissonForcedWriteLock checks that dlock notices at its next renewal that Java has forced its lock, or its
// share, open.
func redissonForcedWriteLock(t *testing.T, s *shared) {
	const ttl = 1500 * time.Millisecond
	for kind, opts := range map[string][]dlock.Option{"write": nil, "read": {dlock.WithShared()}} {
		name := s.nameOf("forced", kind)
		lease := tryLock(t, s.client(t), name, append(opts, dlock.WithTTL(ttl))...)
		java := s.javaThread(t, kind, name)
		java.Send("force", java.kind, java.name)
		java.Expect("forced")
		writer := s.javaThread(t, "write", name)
		writer.locks(longTTL)
		select {
		case <-lease.Context().Done():
		case <-time.After(ttl):
			t.Errorf("dlock still trusts a lock that Java holds, after %v", ttl)
		}
		mustRefuse(t, s.client(t), name, opts...)
		writer.unlocks()
	}
}

// redissonBrokenReader checks that dlock lists a reader of Java beside its own, and can break its share alone.
func redissonBrokenReader(t *testing.T, s *shared) {
	c, name := s.client(t), s.nameOf("broken-reader")
	lease, java := tryLock(t, c, name, dlock.WithShared()), s.javaThread(t, "read", name)
	java.locks(longTTL)
	found := 0
	for info, err := range c.Locks(t.Context(), name) {
		if err != nil {
			t.Fatalf("Locks: %v", err)
		}
		found++
		if !info.Mode.Shared {
			t.Errorf("%+v is listed; want a shared holder", info)
		}
		if info.Holder.Program == "" {
			if err := c.Break(t.Context(), info.Name, info.Token); err != nil {
				t.Errorf("Break(%q, %d): %v", info.Name, info.Token, err)
			}
		}
	}
	if found != 2 {
		t.Errorf("%d holders are listed, want those of Java and dlock", found)
	}
	java.Send("unlock", java.kind, java.name)
	java.Expect("error") // IllegalMonitorStateException
	mustRefuse(t, s.client(t), name)
	unlock(t, lease)
	unlock(t, tryLock(t, c, name))
}

// awaitChannel waits until a client has subscribed to the channel, which is not sharded.
func (s *shared) awaitChannel(t testing.TB, channel string) {
	t.Helper()
	eventually(t, "a client has subscribed to "+channel, func() (bool, error) {
		counts, err := s.redis.PubSubNumSub(t.Context(), channel).Result()
		return counts[channel] > 0, err
	})
}

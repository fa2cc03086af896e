//go:build interop

package interop

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/redislock"
)

// awaitQueue waits until the queue of a fair lock has this length.
func (s *shared) awaitQueue(t testing.TB, name string, length int64) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d queue for %q", length, name), func() (bool, error) {
		n, err := s.redis.LLen(t.Context(), "redisson_lock_queue:{"+name+"}").Result()
		return n == length, err
	})
}

// redissonFairOrder checks that waiters of Java and of dlock are served in the
// order of arrival.
func redissonFairOrder(t *testing.T, s *shared) {
	const name, waiters = "ordered", 8
	lease := tryLock(t, s.client(t), name, dlock.WithFair())
	order := make(chan string, waiters)
	var want []string
	threads := make(map[string]javaThread)
	for i := range waiters {
		who := fmt.Sprint("dlock ", i)
		if i%2 == 1 {
			who = fmt.Sprint("Java ", i)
			threads[who] = s.javaThread(t, "fair", name)
		}
		want = append(want, who)
		if java, isJava := threads[who]; isJava {
			java.beginLock()
		} else {
			later := lockLater(t, s.client(t), name, dlock.WithFair())
			go func() {
				w := <-later
				order <- who
				if w.err == nil {
					_ = w.lease.Unlock(context.Background()) // a failure shows in the order
				}
			}()
		}
		s.awaitQueue(t, name, int64(i+1))
	}
	start := time.Now()
	unlock(t, lease)
	var got []string
	for i := range waiters {
		if java, isJava := threads[want[i]]; isJava { // Java answers only when it has the lock
			java.gets()
			order <- want[i]
			java.unlocks()
		}
		select {
		case who := <-order:
			got = append(got, who)
		case <-time.After(longTTL / 2):
			t.Fatalf("served only %q; want %q", got, want)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("served %q, want %q", got, want)
	}
	t.Logf("%s: %d in a mixed queue were served in %v", t.Name(), waiters, time.Since(start).Round(time.Millisecond))
}

// redissonDeadFairJava checks that a dead waiter of Java delays dlock only until
// its place has expired, which is after the holder's TTL and its own wait.
func redissonDeadFairJava(t *testing.T, s *shared) {
	const name, ttl, javaWait = "dead-java", 2 * time.Second, 2 * time.Second
	victim := &shared{java: startJava(t, s.build, s.url)}
	lease := tryLock(t, s.client(t), name, dlock.WithFair(), dlock.WithTTL(ttl))
	victim.javaThread(t, "fair", name).Send("try", "fair", name, javaWait.Milliseconds(), longTTL.Milliseconds())
	s.awaitQueue(t, name, 1)
	victim.java.Kill()
	later := lockLater(t, s.client(t), name, dlock.WithFair())
	s.awaitQueue(t, name, 2)
	unlock(t, lease)
	unlocked := time.Now()
	w := granted(t, later, ttl+javaWait+2*wakeLimit)
	report(t, "dlock behind a dead Java", []time.Duration{w.at.Sub(unlocked)}, ttl+javaWait+wakeLimit)
	unlock(t, w.lease)
}

// redissonDeadFairDlock checks that a dead waiter of dlock delays Java, and other
// clients of dlock, only until its place has expired, which is after its TTL.
// Java polls again only after the remaining TTL of the holder.
func redissonDeadFairDlock(t *testing.T, s *shared) {
	const name, ttl = "dead-dlock", 10 * time.Second // so that the others queue before the place expires
	c := s.client(t)
	lease := tryLock(t, c, name, dlock.WithFair(), dlock.WithTTL(ttl))
	dead := driver.Request{Name: name, Owner: driver.NewOwner(), TTL: ttl, Fair: true, Queue: true}
	if _, err := newStore(t, s.redis, redislock.Redisson).Acquire(t.Context(), dead); !errors.Is(err, dlock.ErrHeld) {
		t.Fatalf("a fair attempt: %v; want ErrHeld", err)
	}
	java := s.javaThread(t, "fair", name)
	java.beginLock()
	s.awaitQueue(t, name, 2)
	later := lockLater(t, c, name, dlock.WithFair())
	s.awaitQueue(t, name, 3)
	unlock(t, lease)
	unlocked := time.Now()
	_, at := java.gets()
	report(t, "Java behind a dead dlock", []time.Duration{at.Sub(unlocked)}, ttl+wakeLimit)
	began := java.unlocks()
	w := granted(t, later, 2*wakeLimit)
	report(t, "dlock behind that Java", []time.Duration{w.at.Sub(began)}, wakeLimit)
	unlock(t, w.lease)
}

// redissonDeadFairBetween is redissonDeadFairDlock with a waiter of Java before
// the dead one. When Java is served it shortens the places of all waiters.
func redissonDeadFairBetween(t *testing.T, s *shared) {
	const name, ttl = "dead-between", 10 * time.Second
	c := s.client(t)
	lease := tryLock(t, c, name, dlock.WithFair(), dlock.WithTTL(ttl))
	java := s.javaThread(t, "fair", name)
	java.beginLock()
	s.awaitQueue(t, name, 1)
	dead := driver.Request{Name: name, Owner: driver.NewOwner(), TTL: ttl, Fair: true, Queue: true}
	if _, err := newStore(t, s.redis, redislock.Redisson).Acquire(t.Context(), dead); !errors.Is(err, dlock.ErrHeld) {
		t.Fatalf("a fair attempt: %v; want ErrHeld", err)
	}
	later := lockLater(t, c, name, dlock.WithFair(), dlock.WithTTL(ttl))
	s.awaitQueue(t, name, 3)
	unlock(t, lease)
	java.gets()
	began := java.unlocks()
	w := granted(t, later, longTTL/2)
	report(t, "dlock behind a dead dlock behind a Java", []time.Duration{w.at.Sub(began)}, ttl+wakeLimit)
	unlock(t, w.lease)
}

// redissonFairJavaGivesUp checks that the waiters behind a waiter of Java that
// gives up move on.
func redissonFairJavaGivesUp(t *testing.T, s *shared) {
	const name = "java-gives-up"
	lease := tryLock(t, s.client(t), name, dlock.WithFair())
	java := s.javaThread(t, "fair", name)
	java.Send("try", "fair", name, 700, longTTL.Milliseconds())
	s.awaitQueue(t, name, 1)
	later := lockLater(t, s.client(t), name, dlock.WithFair())
	s.awaitQueue(t, name, 2)
	java.Expect("refused")
	s.awaitQueue(t, name, 1)
	began := time.Now()
	unlock(t, lease)
	w := granted(t, later, longTTL/2)
	report(t, "dlock behind a cancelled waiter of Java", []time.Duration{w.at.Sub(began)}, wakeLimit)
	unlock(t, w.lease)
}

// redissonFairDlockGivesUp checks that the waiters behind a waiter of dlock that
// gives up move on.
func redissonFairDlockGivesUp(t *testing.T, s *shared) {
	const name = "dlock-gives-up"
	holder := s.javaThread(t, "fair", name)
	holder.locks(longTTL)
	ctx, giveUp := context.WithCancel(t.Context())
	quitter := s.client(t)
	gone := make(chan error, 1)
	go func() {
		_, err := quitter.Lock(ctx, name, dlock.WithFair())
		gone <- err
	}()
	s.awaitQueue(t, name, 1)
	java := s.javaThread(t, "fair", name)
	java.beginLock()
	s.awaitQueue(t, name, 2)
	giveUp()
	if err := <-gone; !errors.Is(err, context.Canceled) {
		t.Errorf("Lock: %v; want context.Canceled", err)
	}
	s.awaitQueue(t, name, 1)
	began := holder.unlocks()
	_, at := java.gets()
	report(t, "Java behind a cancelled waiter of dlock", []time.Duration{at.Sub(began)}, wakeLimit)
	java.unlocks()
}

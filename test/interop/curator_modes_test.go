//go:build interop

package interop

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/test/harness/servers"
	"github.com/dlock-go/dlock/zklock"
)

// curator is a server with clients of dlock and a build of the Java program, for locks of one path.
type curator struct {
	*testing.T
	build  string
	server *servers.Server
	locks  *dlock.Client
	java   agent
}

// TestCuratorModes checks which of dlock's modes and Curator's recipes exclude each other on one
// path, that they wake each other, and that a downgrade and a dead reader change nothing else.
func TestCuratorModes(t *testing.T) {
	for build := range strings.SplitSeq(os.Getenv(curatorEnv), ":") {
		t.Run(filepath.Base(build), func(t *testing.T) {
			t.Parallel()
			c := &curator{T: t, build: build, server: servers.Run(t, servers.ZooKeeperReaping)}
			c.locks = c.open("fair")
			c.java = c.start("60000")
			for kind, opts := range map[string][]dlock.Option{"exclusive": nil, "shared": {dlock.WithShared()}} {
				for _, recipe := range []string{"mutex", "read", "write"} {
					c.excludes(c.locks, kind, recipe, kind == "exclusive" || recipe != "read", opts...)
				}
			}
			unfair := c.open("unfair")
			for _, recipe := range []string{"mutex", "read", "write"} {
				c.excludes(unfair, "unfair", recipe, true)
			}
			c.exclusiveOnly()
			c.javaDowngrades()
			c.dlockDowngrades()
			c.sharesPermits()
			c.readerDies()
		})
	}
}

func (c *curator) open(order string) *dlock.Client {
	c.Helper()
	store, err := zklock.Open(c.Context(), c.server.URL()+"/locks?timeout=10s&order="+order, nil)
	if err != nil {
		c.Fatal(err)
	}
	c.Cleanup(func() { _ = store.Close() })
	return newClient(c, store)
}

func (c *curator) start(sessionMillis string) agent {
	c.Helper()
	return startAgent(c, c.build, "dlock.interop.Curator", c.server.Addr(), "/locks/shared", sessionMillis)
}

// excludes checks a pair in both orders. Each wakes the other if they exclude each other.
func (c *curator) excludes(locks *dlock.Client, kind, recipe string, excludes bool, opts ...dlock.Option) {
	c.Helper()
	outcome := map[bool]string{true: "refused", false: "locked"}[excludes]
	lease := granted(c, lockLater(c, locks, "shared", opts...), javaLimit).lease
	if got := c.java.answer("try " + recipe); got != outcome {
		c.Fatalf("dlock's %s lock, then Java's %s: %s; want %s", kind, recipe, got, outcome)
	}
	if excludes {
		c.java.Send("lock " + recipe)
		awaitWaiters(c, c.locks, 1)
	}
	unlock(c, lease)
	if excludes {
		c.java.Expect("locked")
	}
	lease, err := locks.TryLock(c.Context(), "shared", opts...)
	if (err == nil) == excludes || err != nil && !errors.Is(err, dlock.ErrHeld) {
		c.Fatalf("Java's %s, then dlock's %s lock: %v; want %s", recipe, kind, err, outcome)
	}
	if err == nil {
		unlock(c, lease)
		c.java.do("unlock "+recipe, "unlocked")
		return
	}
	later := lockLater(c, locks, "shared", opts...)
	if locks.Traits().Queues {
		awaitWaiters(c, c.locks, 1)
	}
	start := time.Now()
	c.java.do("unlock "+recipe, "unlocked")
	w := granted(c, later, javaLimit)
	unlock(c, w.lease)
	if took := w.at.Sub(start); took > 5*time.Second {
		c.Errorf("Java's %s wakes dlock's %s lock after %v", recipe, kind, took)
	}
}

// exclusiveOnly checks that a store with ExclusiveOnly and Java's mutex exclude each other, and that
// Java's read-write lock does not see the store's lock, as documented.
func (c *curator) exclusiveOnly() {
	c.Helper()
	locks := c.open("fair&modes=exclusive")
	c.excludes(locks, "only exclusive", "mutex", true)
	for _, recipe := range []string{"read", "write"} {
		lease := mustLock(c, locks)
		c.java.do("try "+recipe, "locked")
		unlock(c, lease)
		mustRefuse(c, locks, "shared")
		c.java.do("unlock "+recipe, "unlocked")
	}
}

// javaDowngrades checks that a writer of Java that becomes a reader lets dlock's readers in, and not
// its exclusive waiters. Before Curator 5.5 a writer that waits in between gets the lock, also in
// Java alone (CURATOR-621): there is no such waiter then.
func (c *curator) javaDowngrades() {
	c.Helper()
	c.java.do("lock write", "locked")
	reader := lockLater(c, c.locks, "shared", dlock.WithShared())
	awaitWaiters(c, c.locks, 1)
	var writer <-chan wait
	if !strings.Contains(filepath.Base(c.build), "-4.") {
		writer = lockLater(c, c.open("fair"), "shared")
		awaitWaiters(c, c.locks, 2)
	}
	c.java.do("lock read", "locked")
	c.java.do("unlock write", "unlocked")
	lease := granted(c, reader, javaLimit).lease
	mustRefuse(c, c.open("fair"), "shared")
	unlock(c, lease)
	mustRefuse(c, c.open("fair"), "shared")
	select {
	case <-writer:
		c.Fatal("dlock's exclusive waiter got the lock beside a reader of Java that was a writer")
	default:
	}
	c.java.do("unlock read", "unlocked")
	if writer != nil {
		unlock(c, granted(c, writer, javaLimit).lease)
	}
}

// dlockDowngrades checks that Java's readers are woken and its writers are not.
func (c *curator) dlockDowngrades() {
	c.Helper()
	lease := mustLock(c, c.locks)
	c.java.Send("lock read")
	awaitWaiters(c, c.locks, 1)
	if err := lease.Downgrade(c.Context()); err != nil {
		c.Fatalf("Downgrade: %v", err)
	}
	c.java.Expect("locked")
	c.java.do("unlock read", "unlocked")
	c.java.do("try write", "refused")
	c.java.do("try mutex", "refused")
	c.java.Send("lock write")
	awaitWaiters(c, c.locks, 1)
	unlock(c, lease)
	c.java.Expect("locked")
	c.java.do("unlock write", "unlocked")
}

// sharesPermits checks that Java and dlock share two permits.
func (c *curator) sharesPermits() {
	c.Helper()
	two := dlock.WithLimit(2)
	first := granted(c, lockLater(c, c.locks, "shared", two), javaLimit).lease
	c.java.do("lock permit", "locked")
	mustRefuse(c, c.locks, "shared", two)
	later := lockLater(c, c.locks, "shared", two)
	awaitWaiters(c, c.locks, 1)
	c.java.do("unlock permit", "unlocked")
	second := granted(c, later, javaLimit).lease
	c.java.do("try permit", "refused")
	c.java.Send("lock permit")
	awaitWaiters(c, c.locks, 1)
	later = lockLater(c, c.open("fair"), "shared", two) // Java came first
	awaitWaiters(c, c.locks, 2)
	unlock(c, first)
	c.java.Expect("locked")
	unlock(c, second)
	unlock(c, granted(c, later, javaLimit).lease)
	c.java.do("unlock permit", "unlocked")
}

// readerDies checks that a killed reader of Java is gone after its session, and no other reader.
func (c *curator) readerDies() {
	c.Helper()
	mortal := c.start("4000")
	mortal.do("lock read", "locked")
	c.java.do("lock read", "locked")
	lease := granted(c, lockLater(c, c.locks, "shared", dlock.WithShared()), javaLimit).lease
	mortal.Kill()
	writer := lockLater(c, c.open("fair"), "shared")
	awaitWaiters(c, c.locks, 1)
	eventually(c, "the dead reader is gone", func() (bool, error) {
		holders := 0
		for _, err := range c.locks.Locks(c.Context(), "shared") {
			if err != nil {
				return false, err
			}
			holders++
		}
		return holders == 2, nil
	})
	c.java.do("unlock read", "unlocked")
	select {
	case <-writer:
		c.Fatal("dlock's exclusive waiter got the lock beside a shared holder")
	case <-time.After(100 * time.Millisecond):
	}
	unlock(c, lease)
	unlock(c, granted(c, writer, javaLimit).lease)
}

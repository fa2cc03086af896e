//go:build interop

package interop

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/test/harness/child"
)

// javaLimit bounds the wait for an event that must happen.
const javaLimit = 30 * time.Second

// javaCommand returns a command that runs the main method of a class of a build.
func javaCommand(t testing.TB, build, class string, args ...string) *exec.Cmd {
	t.Helper()
	classpath, err := os.ReadFile(filepath.Join(build, "classpath"))
	if err != nil {
		t.Fatalf("%s is no build of the Java program: %v", build, err)
	}
	java := []string{"-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx128m", // start faster
		"-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
		"-cp", filepath.Join(build, "classes") + string(filepath.ListSeparator) + string(classpath), class}
	return exec.Command("java", append(java, args...)...)
}

// agent is a Java process with a lock. It executes one order after the other.
type agent struct {
	*child.Threads
	*child.Thread
}

func startAgent(t testing.TB, build, class string, args ...string) agent {
	t.Helper()
	process := child.RunThreads(t, javaCommand(t, build, class, args...))
	return agent{process, process.Thread(t)}
}

// do sends an order and checks the answer.
func (p agent) do(order, want string) {
	p.Send(order)
	p.Expect(want)
}

// answer sends an order and returns the answer.
func (p agent) answer(order string) string {
	p.Send(order)
	return strings.Join(p.Receive(), " ")
}

// javaIsWoken checks that Java, which waits for dlock, is woken.
func javaIsWoken(t *testing.T, java agent, locks *dlock.Client) {
	t.Helper()
	lease := mustLock(t, locks)
	java.Send("lock")
	awaitWaiters(t, locks, 1)
	unlock(t, lease)
	start := time.Now()
	java.Expect("locked")
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("Java was woken after %v", took)
	}
	java.do("unlock", "unlocked")
}

// javaWakes checks that dlock, which waits for Java, is woken.
func javaWakes(t *testing.T, java agent, locks *dlock.Client) {
	t.Helper()
	java.do("lock", "locked")
	got := lockLater(t, locks, "shared")
	if locks.Traits().Fair {
		awaitWaiters(t, locks, 1)
	}
	start := time.Now()
	java.do("unlock", "unlocked")
	w := granted(t, got, javaLimit)
	unlock(t, w.lease)
	if took := w.at.Sub(start); took > 5*time.Second { // dlock polls every 20 s
		t.Errorf("dlock was woken after %v", took)
	}
}

// javaQueues checks that two waiters of Java and two of dlock are served in the
// order of arrival.
func javaQueues(t *testing.T, java, other agent, locks *dlock.Client) {
	t.Helper()
	fair := dlock.WithFair()
	first := mustLock(t, locks)
	java.Send("lock")
	awaitWaiters(t, locks, 1)
	second := lockLater(t, locks, "shared", fair)
	awaitWaiters(t, locks, 2)
	other.Send("lock")
	awaitWaiters(t, locks, 3)
	last := lockLater(t, locks, "shared", fair)
	awaitWaiters(t, locks, 4)
	unlock(t, first)
	java.Expect("locked")
	java.do("unlock", "unlocked")
	lease := granted(t, second, javaLimit).lease
	unlock(t, lease)
	other.Expect("locked")
	other.do("unlock", "unlocked")
	unlock(t, granted(t, last, javaLimit).lease)
}

func tokenOf(t testing.TB, locks *dlock.Client) uint64 {
	t.Helper()
	info, found, err := locks.Find(t.Context(), "shared")
	if err != nil || !found {
		t.Fatalf("Find: %v, %v", found, err)
	}
	return info.Token
}

func mustLock(t testing.TB, locks *dlock.Client) *dlock.Lease {
	t.Helper()
	return granted(t, lockLater(t, locks, "shared"), javaLimit).lease
}

// awaitWaiters waits until the lock has that many waiters.
func awaitWaiters(t testing.TB, locks *dlock.Client, want int) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(javaLimit); ; <-tick.C {
		info, _, err := locks.Find(t.Context(), "shared")
		if err != nil {
			t.Fatal(err)
		}
		if info.Waiters == want {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d waiters; want %d", info.Waiters, want)
		}
	}
}

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

// javaLimit is for what must happen, however long it takes.
const javaLimit = 30 * time.Second

// javaCommand runs the main of a class in a build of the Java side.
func javaCommand(t testing.TB, build, class string, args ...string) *exec.Cmd {
	t.Helper()
	classpath, err := os.ReadFile(filepath.Join(build, "classpath"))
	if err != nil {
		t.Fatalf("%s is no build of the Java side: %v", build, err)
	}
	java := []string{"-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx128m", // it starts sooner
		"-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
		"-cp", filepath.Join(build, "classes") + string(filepath.ListSeparator) + string(classpath), class}
	return exec.Command("java", append(java, args...)...)
}

// puppet is a Java process with a lock, which obeys one order after the other.
type puppet struct {
	*child.Process
	*child.Thread
}

func startPuppet(t testing.TB, build, class string, args ...string) puppet {
	t.Helper()
	process := child.Start(t, javaCommand(t, build, class, args...))
	return puppet{process, process.Thread(t)}
}

// do gives an order and waits for the answer.
func (p puppet) do(order, want string) {
	p.Tell(order)
	p.Hear(want)
}

// answer is what it says to an order.
func (p puppet) answer(order string) string {
	p.Tell(order)
	return strings.Join(p.HearAny(), " ")
}

// javaIsWoken: Java waits for dlock.
func javaIsWoken(t *testing.T, java puppet, locks *dlock.Client) {
	t.Helper()
	lease := mustLock(t, locks)
	java.Tell("lock")
	awaitWaiters(t, locks, 1)
	unlock(t, lease)
	start := time.Now()
	java.Hear("locked")
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("Java was woken after %v", took)
	}
	java.do("unlock", "unlocked")
}

// javaWakes: dlock waits for Java.
func javaWakes(t *testing.T, java puppet, locks *dlock.Client) {
	t.Helper()
	java.do("lock", "locked")
	got := lockLater(t, locks, "shared")
	if locks.Traits().Fair {
		awaitWaiters(t, locks, 1)
	}
	java.do("unlock", "unlocked")
	unlock(t, granted(t, got, javaLimit).lease)
}

// javaQueues: two of Java and two of dlock are served as they came.
func javaQueues(t *testing.T, java, other puppet, locks *dlock.Client) {
	t.Helper()
	fair := dlock.WithFair()
	first := mustLock(t, locks)
	java.Tell("lock")
	awaitWaiters(t, locks, 1)
	second := lockLater(t, locks, "shared", fair)
	awaitWaiters(t, locks, 2)
	other.Tell("lock")
	awaitWaiters(t, locks, 3)
	last := lockLater(t, locks, "shared", fair)
	awaitWaiters(t, locks, 4)
	unlock(t, first)
	java.Hear("locked")
	java.do("unlock", "unlocked")
	lease := granted(t, second, javaLimit).lease
	unlock(t, lease)
	other.Hear("locked")
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

// awaitWaiters waits until so many wait in the store.
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
			t.Fatalf("%d wait; want %d", info.Waiters, want)
		}
	}
}

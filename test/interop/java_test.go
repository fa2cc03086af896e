//go:build interop

package interop

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
)

// javaLimit is for what must happen, however long it takes.
const javaLimit = 30 * time.Second

// puppet is a Java process with a lock, which obeys one order after the other.
type puppet struct {
	t       testing.TB
	cmd     *exec.Cmd
	orders  io.Writer
	answers chan string
}

// startPuppet starts the main of a class in a build of the Java side.
func startPuppet(t testing.TB, build, class string, args ...string) *puppet {
	t.Helper()
	classpath, err := os.ReadFile(filepath.Join(build, "classpath"))
	if err != nil {
		t.Fatal(err)
	}
	java := []string{"-Xmx128m", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
		"-cp", filepath.Join(build, "classes") + string(filepath.ListSeparator) + string(classpath), class}
	cmd := exec.Command("java", append(java, args...)...)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	orders, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	c := &puppet{t: t, cmd: cmd, orders: orders, answers: make(chan string, 10)}
	read := make(chan struct{})
	go func() {
		defer close(read)
		for lines := bufio.NewScanner(output); lines.Scan(); {
			c.answers <- lines.Text()
		}
	}()
	t.Cleanup(func() {
		_ = orders.Close()
		_ = cmd.Process.Kill()
		<-read
		_ = cmd.Wait()
	})
	c.hears("ready")
	return c
}

// send gives an order without waiting for the answer.
func (p *puppet) send(order string) {
	p.t.Helper()
	if _, err := fmt.Fprintln(p.orders, order); err != nil {
		p.t.Fatal(err)
	}
}

func (p *puppet) answer() string {
	p.t.Helper()
	select {
	case answer := <-p.answers:
		return answer
	case <-time.After(javaLimit):
		p.t.Fatalf("no answer of Java within %v", javaLimit)
		return ""
	}
}

func (p *puppet) hears(want string) {
	p.t.Helper()
	if got := p.answer(); got != want {
		p.t.Fatalf("Java says %q; want %q", got, want)
	}
}

func (p *puppet) do(order, want string) {
	p.t.Helper()
	p.send(order)
	p.hears(want)
}

// javaIsWoken: Java waits for dlock.
func javaIsWoken(t *testing.T, java *puppet, locks *dlock.Client) {
	t.Helper()
	lease := mustLock(t, locks)
	java.send("lock")
	awaitWaiters(t, locks, 1)
	unlock(t, lease)
	start := time.Now()
	java.hears("locked")
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("Java was woken after %v", took)
	}
	java.do("unlock", "unlocked")
}

// javaWakes: dlock waits for Java.
func javaWakes(t *testing.T, java *puppet, locks *dlock.Client) {
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
func javaQueues(t *testing.T, java, other *puppet, locks *dlock.Client) {
	t.Helper()
	fair := dlock.WithFair()
	first := mustLock(t, locks)
	java.send("lock")
	awaitWaiters(t, locks, 1)
	second := lockLater(t, locks, "shared", fair)
	awaitWaiters(t, locks, 2)
	other.send("lock")
	awaitWaiters(t, locks, 3)
	last := lockLater(t, locks, "shared", fair)
	awaitWaiters(t, locks, 4)
	unlock(t, first)
	java.hears("locked")
	java.do("unlock", "unlocked")
	lease := granted(t, second, javaLimit).lease
	unlock(t, lease)
	other.hears("locked")
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

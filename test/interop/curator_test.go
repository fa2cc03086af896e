//go:build interop

package interop

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/test/servers"
	"github.com/dlock-go/dlock/zklock"
)

// curatorEnv lists folders with a build of the Java side, each for one version of
// Curator.
const curatorEnv = "DLOCK_TEST_CURATOR"

// curatorLimit is for what must happen, however long it takes.
const curatorLimit = 30 * time.Second

// curator is a Java process with an InterProcessMutex.
type curator struct {
	t       testing.TB
	cmd     *exec.Cmd
	orders  io.Writer
	answers chan string
}

// startCurator starts Java for the lock at that path.
func startCurator(t testing.TB, build, addr, path string) *curator {
	t.Helper()
	classpath, err := os.ReadFile(filepath.Join(build, "classpath"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("java", "-Xmx128m", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error",
		"-cp", filepath.Join(build, "classes")+string(filepath.ListSeparator)+string(classpath), "dlock.interop.Curator", addr, path)
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
	c := &curator{t: t, cmd: cmd, orders: orders, answers: make(chan string, 10)}
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
func (c *curator) send(order string) {
	c.t.Helper()
	if _, err := fmt.Fprintln(c.orders, order); err != nil {
		c.t.Fatal(err)
	}
}

func (c *curator) answer() string {
	c.t.Helper()
	select {
	case answer := <-c.answers:
		return answer
	case <-time.After(curatorLimit):
		c.t.Fatalf("no answer of Java within %v", curatorLimit)
		return ""
	}
}

func (c *curator) hears(want string) {
	c.t.Helper()
	if got := c.answer(); got != want {
		c.t.Fatalf("Java says %q; want %q", got, want)
	}
}

func (c *curator) do(order, want string) {
	c.t.Helper()
	c.send(order)
	c.hears(want)
}

// TestCurator: InterProcessMutex and dlock exclude each other, wake each other, are
// served in the order of arrival, and read each other's nodes.
func TestCurator(t *testing.T) {
	builds := os.Getenv(curatorEnv)
	if builds == "" {
		t.Fatalf("%s is not set: run test/interop/curator/run", curatorEnv)
	}
	for build := range strings.SplitSeq(builds, ":") {
		for _, order := range []string{"fair", "unfair"} {
			t.Run(filepath.Base(build)+"/"+order, func(t *testing.T) {
				t.Parallel()
				server := servers.Run(t, servers.ZooKeeper)
				store, err := zklock.Open(server.URL() + "/locks?create=true&timeout=10s&order=" + order)
				if err != nil {
					t.Fatal(err)
				}
				locks := dlock.New(store, nil)
				t.Cleanup(func() {
					if err := locks.Close(); err != nil {
						t.Error(err)
					}
					_ = store.Close()
				})
				java := startCurator(t, build, server.Addr(), "/locks/shared")
				curatorExcludes(t, java, locks)
				curatorIsWoken(t, java, locks)
				curatorWakes(t, java, locks)
				if order == "fair" {
					curatorQueues(t, java, startCurator(t, build, server.Addr(), "/locks/shared"), locks)
				}
				curatorDies(t, java, locks)
			})
		}
	}
}

func curatorExcludes(t *testing.T, java *curator, locks *dlock.Client) {
	t.Helper()
	java.do("lock", "locked")
	held, err := lockError(locks.TryLock(t.Context(), "shared"))
	if held == nil || held.Token == 0 || held.Holder.Note == "" {
		t.Errorf("TryLock of what Java has: %v; want that it is held by somebody with a token and an address", err)
	}
	info, found, err := locks.Find(t.Context(), "shared")
	if err != nil || !found || held != nil && info.Token != held.Token {
		t.Errorf("Find: %+v, %v, %v", info, found, err)
	}
	java.do("unlock", "unlocked")
	lease := mustLock(t, locks)
	java.do("try", "refused")
	java.send("data")
	if got := java.answer(); !strings.Contains(got, `"pid":`+fmt.Sprint(os.Getpid())) {
		t.Errorf("Java reads %q in the node of the holder", got)
	}
	unlock(t, lease)
	java.do("try", "locked")
	java.do("unlock", "unlocked")
}

// curatorIsWoken: Java waits for dlock.
func curatorIsWoken(t *testing.T, java *curator, locks *dlock.Client) {
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

// curatorWakes: dlock waits for Java.
func curatorWakes(t *testing.T, java *curator, locks *dlock.Client) {
	t.Helper()
	java.do("lock", "locked")
	got := lockLater(t, locks, "shared")
	if locks.Traits().Fair {
		awaitWaiters(t, locks, 1)
	}
	java.do("unlock", "unlocked")
	unlock(t, granted(t, got, curatorLimit).lease)
}

// curatorQueues: two of Java and two of dlock are served as they came.
func curatorQueues(t *testing.T, java, other *curator, locks *dlock.Client) {
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
	lease := granted(t, second, curatorLimit).lease
	unlock(t, lease)
	other.hears("locked")
	other.do("unlock", "unlocked")
	unlock(t, granted(t, last, curatorLimit).lease)
}

// curatorDies: what Java had is free when its session is over.
func curatorDies(t *testing.T, java *curator, locks *dlock.Client) {
	t.Helper()
	java.do("lock", "locked")
	if err := java.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := locks.Break(t.Context(), "shared", tokenOf(t, locks)); err != nil { // its session lasts a minute
		t.Error(err)
	}
	unlock(t, mustLock(t, locks))
}

func tokenOf(t testing.TB, locks *dlock.Client) uint64 {
	t.Helper()
	info, found, err := locks.Find(t.Context(), "shared")
	if err != nil || !found {
		t.Fatalf("Find: %v, %v", found, err)
	}
	return info.Token
}

func lockError(_ *dlock.Lease, err error) (*dlock.HeldError, error) {
	held, _ := errors.AsType[*dlock.HeldError](err)
	return held, err
}

func mustLock(t testing.TB, locks *dlock.Client) *dlock.Lease {
	t.Helper()
	return granted(t, lockLater(t, locks, "shared"), curatorLimit).lease
}

// awaitWaiters waits until so many wait in ZooKeeper.
func awaitWaiters(t testing.TB, locks *dlock.Client, want int) {
	t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(curatorLimit); ; <-tick.C {
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

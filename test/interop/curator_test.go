//go:build interop

package interop

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/test/harness/servers"
	"github.com/dlock-go/dlock/zklock"
)

// curatorEnv lists folders with a build of the Java program, each for one version
// of Curator.
const curatorEnv = "DLOCK_TEST_CURATOR"

// TestCurator checks that InterProcessMutex and dlock exclude each other, wake
// each other, are served in the order of arrival, and read each other's nodes.
func TestCurator(t *testing.T) {
	builds := os.Getenv(curatorEnv)
	if builds == "" {
		t.Fatalf("%s is not set: run test/interop/curator/run", curatorEnv)
	}
	for build := range strings.SplitSeq(builds, ":") {
		for _, order := range []string{"fair", "unfair"} {
			t.Run(filepath.Base(build)+"/"+order, func(t *testing.T) {
				t.Parallel()
				server := servers.Run(t, servers.ZooKeeperReaping)
				store, err := zklock.Open(t.Context(), server.URL()+"/locks?create=true&timeout=10s&order="+order, nil)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = store.Close() })
				locks := newClient(t, store)
				start := func() agent {
					return startAgent(t, build, "dlock.interop.Curator", server.Addr(), "/locks/shared")
				}
				java := start()
				curatorExcludes(t, java, locks)
				javaIsWoken(t, java, locks)
				javaWakes(t, java, locks)
				if order == "fair" {
					javaQueues(t, java, start(), locks)
				}
				curatorDies(t, java, locks)
			})
		}
	}
}

func curatorExcludes(t *testing.T, java agent, locks *dlock.Client) {
	t.Helper()
	java.do("lock", "locked")
	held, err := lockError(locks.TryLock(t.Context(), "shared"))
	if held == nil || held.Token == 0 || held.Holder.Note == "" {
		t.Errorf("TryLock of Java's lock: %v; want a HeldError with a token and an address", err)
	}
	info, found, err := locks.Find(t.Context(), "shared")
	if err != nil || !found || held != nil && info.Token != held.Token {
		t.Errorf("Find: %+v, %v, %v", info, found, err)
	}
	java.do("unlock", "unlocked")
	lease := mustLock(t, locks)
	java.do("try", "refused")
	if got := java.answer("data"); !strings.Contains(got, `"pid":`+fmt.Sprint(os.Getpid())) {
		t.Errorf("Java reads %q in the node of the holder", got)
	}
	unlock(t, lease)
	java.do("try", "locked")
	java.do("unlock", "unlocked")
}

// curatorDies checks that dlock can break the lock of a dead Java process.
func curatorDies(t *testing.T, java agent, locks *dlock.Client) {
	t.Helper()
	java.do("lock", "locked")
	java.Kill()
	if err := locks.Break(t.Context(), "shared", tokenOf(t, locks)); err != nil { // its session lasts a minute
		t.Error(err)
	}
	unlock(t, mustLock(t, locks))
}

func lockError(_ *dlock.Lease, err error) (*dlock.HeldError, error) {
	held, _ := errors.AsType[*dlock.HeldError](err)
	return held, err
}

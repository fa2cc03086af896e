//go:build interop

package interop

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/etcdlock"
	"github.com/dlock-go/dlock/test/harness/servers"
)

// jetcdEnv is the folder with a build of the Java program.
const jetcdEnv = "DLOCK_TEST_JETCD"

// jetcdSeconds is how long the lock of a killed Java process lasts.
const jetcdSeconds = "5"

// TestJetcd checks that jetcd's lock, which is that of the server, and dlock
// exclude each other, wake each other and are served in the order of arrival,
// with a current server and with an old one.
func TestJetcd(t *testing.T) {
	build := os.Getenv(jetcdEnv)
	if build == "" {
		t.Fatalf("%s is not set: run test/interop/jetcd/run", jetcdEnv)
	}
	for _, kind := range []*servers.Kind{servers.Etcd, servers.EtcdDebian} {
		t.Run(kind.Name, func(t *testing.T) {
			t.Parallel()
			server := servers.Run(t, kind)
			store, err := etcdlock.Open(t.Context(), server.URL()+"/shop", nil)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = store.Close() })
			locks := newClient(t, store)
			start := func() agent {
				return startAgent(t, build, "dlock.interop.Jetcd", server.Addr(), "shop/shared", jetcdSeconds)
			}
			java := start()
			jetcdExcludes(t, java, locks)
			javaIsWoken(t, java, locks)
			javaWakes(t, java, locks)
			javaQueues(t, java, start(), locks)
			jetcdWaitsForShares(t, java, locks)
			jetcdIsBroken(t, java, locks)
			jetcdDies(t, java, locks)
		})
	}
}

func jetcdExcludes(t *testing.T, java agent, locks *dlock.Client) {
	t.Helper()
	java.do("lock", "locked")
	held, err := lockError(locks.TryLock(t.Context(), "shared"))
	if held == nil || held.Token == 0 {
		t.Errorf("TryLock of Java's lock: %v; want a HeldError with a token", err)
	}
	if token := tokenOf(t, locks); held != nil && token != held.Token {
		t.Errorf("Find returned token %d, and TryLock %d", token, held.Token)
	}
	if key := java.answer("key"); !strings.HasPrefix(key, "shop/shared/") {
		t.Errorf("Java has the key %q", key)
	}
	java.do("unlock", "unlocked")
}

// jetcdWaitsForShares checks that Java's lock excludes shared holders and permits,
// and waits for all of them.
func jetcdWaitsForShares(t *testing.T, java agent, locks *dlock.Client) {
	t.Helper()
	for refusal, mode := range map[error]dlock.Option{dlock.ErrHeld: dlock.WithShared(), dlock.ErrMode: dlock.WithLimit(2)} {
		java.do("lock", "locked")
		if _, err := locks.TryLock(t.Context(), "shared", mode); !errors.Is(err, refusal) {
			t.Errorf("TryLock of Java's lock: %v; want %v", err, refusal)
		}
		java.do("unlock", "unlocked")
		var leases []*dlock.Lease
		for range 2 {
			lease, err := locks.Lock(t.Context(), "shared", mode)
			if err != nil {
				t.Fatal(err)
			}
			leases = append(leases, lease)
		}
		java.Send("lock")
		awaitWaiters(t, locks, 1)
		for _, lease := range leases {
			select {
			case answer := <-java.Answers():
				t.Fatalf("Java beside dlock's holders: %s", answer)
			case <-time.After(100 * time.Millisecond):
			}
			unlock(t, lease)
		}
		java.Expect("locked")
		java.do("unlock", "unlocked")
	}
}

// jetcdIsBroken checks that dlock can break Java's lock, and that Java's unlock
// has no effect afterwards.
func jetcdIsBroken(t *testing.T, java agent, locks *dlock.Client) {
	t.Helper()
	java.do("lock", "locked")
	if err := locks.Break(t.Context(), "shared", tokenOf(t, locks)); err != nil {
		t.Error(err)
	}
	lease := mustLock(t, locks)
	java.do("unlock", "unlocked")
	if token := tokenOf(t, locks); token != lease.Token() {
		t.Errorf("after Java's unlock the holder has token %d; want %d", token, lease.Token())
	}
	unlock(t, lease)
}

// jetcdDies checks that Java's lock is free when its lease has ended, and not
// before.
func jetcdDies(t *testing.T, java agent, locks *dlock.Client) {
	t.Helper()
	java.do("lock", "locked")
	token := tokenOf(t, locks)
	java.Kill()
	if _, err := lockError(locks.TryLock(t.Context(), "shared")); err == nil {
		t.Error("the lock of a Java process that was just killed is free")
	}
	lease := mustLock(t, locks)
	if lease.Token() <= token {
		t.Errorf("token %d after Java's %d", lease.Token(), token)
	}
	unlock(t, lease)
}

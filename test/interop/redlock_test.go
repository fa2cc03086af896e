package interop

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/redislock/redlock"
	"github.com/dlock-go/dlock/test/harness/servers"
)

const (
	redlockMembers = 5

	// memberTimeout is longer than the default, because the machine is busy. A
	// TTL has to be four times as long.
	memberTimeout = 500 * time.Millisecond
)

// TestRedlockAndRedsync checks that dlock's Redlock and redsync share locks, which
// need three of five servers.
func TestRedlockAndRedsync(t *testing.T) {
	t.Parallel()
	sharePlain(t, func(t testing.TB) plain {
		p, _ := startRedlock(t)
		return p
	})
	t.Run("two servers are dead", func(t *testing.T) {
		t.Parallel()
		p, group := startRedlock(t)
		for _, server := range group[redlockMembers-2:] {
			if err := server.Kill(); err != nil {
				t.Fatal(err)
			}
		}
		plainExclusion(t, p)
		plainHandOver(t, p)
	})
}

// TestRedlockSeesTheMajorityOfRedsync checks that dlock cannot acquire a lock that
// redsync holds on three servers, and the other way round, although the other
// servers are free.
func TestRedlockSeesTheMajorityOfRedsync(t *testing.T) {
	t.Parallel()
	group := runFive(t)
	clients, c := redlockOver(t, group)
	theirs := peerLocks(t, newRedsync(t, clients[:3]...), "x", longTTL)
	mustRefuse(t, c, "x")
	peerUnlocks(t, theirs)

	ours := tryLock(t, c, "x")
	kept := 0
	for _, client := range clients {
		has, err := client.Exists(t.Context(), "x").Result()
		if err == nil && has == 1 {
			if kept++; kept > 3 { // the server loses the lock
				err = client.Del(t.Context(), "x").Err()
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if kept < 3 {
		t.Fatalf("dlock has the lock on %d of 5 servers, want a majority", kept)
	}
	peerMustRefuse(t, newRedsync(t, clients...), "x")
	unlock(t, ours)
}

// runFive starts servers that do not wait for the disk that they share.
func runFive(t testing.TB) servers.Group {
	t.Helper()
	return servers.RunGroup(t, redlockMembers, servers.Redis, "--appendonly", "no")
}

func startRedlock(t testing.TB) (plain, servers.Group) {
	t.Helper()
	group := runFive(t)
	clients, c := redlockOver(t, group)
	return plain{clients[0], c, newRedsync(t, clients...), 4 * memberTimeout}, group
}

func redlockOver(t testing.TB, group servers.Group) ([]*redis.Client, *dlock.Client) {
	t.Helper()
	var clients []*redis.Client
	for _, server := range group {
		clients = append(clients, connect(t, server))
	}
	store, err := redlock.New(clients, &redlock.Options{MemberTimeout: memberTimeout})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Errorf("close the store: %v", err)
		}
	})
	return clients, newClient(t, store)
}

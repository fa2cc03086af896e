package interop

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/quorum"
	"github.com/dlock-go/dlock/redislock"
	"github.com/dlock-go/dlock/test/harness/servers"
)

const (
	quorumMembers = 5

	// memberTimeout is longer than the default, because the machine is busy. A
	// TTL has to be four times as long.
	memberTimeout = 500 * time.Millisecond
)

// TestQuorumAndRedsync checks that dlock's quorum and redsync share locks, which
// need three of five servers.
func TestQuorumAndRedsync(t *testing.T) {
	t.Parallel()
	sharePlain(t, func(t testing.TB) plain {
		p, _ := startQuorum(t)
		return p
	})
	t.Run("two servers are dead", func(t *testing.T) {
		t.Parallel()
		p, group := startQuorum(t)
		for _, server := range group[quorumMembers-2:] {
			if err := server.Kill(); err != nil {
				t.Fatal(err)
			}
		}
		plainExclusion(t, p)
		plainHandOver(t, p)
	})
}

// TestQuorumSeesTheMajorityOfRedsync checks that dlock cannot acquire a lock that
// redsync holds on three servers, and the other way round, although the other
// servers are free.
func TestQuorumSeesTheMajorityOfRedsync(t *testing.T) {
	t.Parallel()
	group := runFive(t)
	clients, c := quorumOver(t, group)
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
	return servers.RunGroup(t, quorumMembers, servers.Redis, "--appendonly", "no")
}

func startQuorum(t testing.TB) (plain, servers.Group) {
	t.Helper()
	group := runFive(t)
	clients, c := quorumOver(t, group)
	return plain{clients[0], c, newRedsync(t, clients...), 4 * memberTimeout}, group
}

func quorumOver(t testing.TB, group servers.Group) ([]*redis.Client, *dlock.Client) {
	t.Helper()
	var clients []*redis.Client
	var members []driver.Store
	for _, server := range group {
		client := connect(t, server)
		clients = append(clients, client)
		members = append(members, newStore(t, client, redislock.Plain))
	}
	store, err := quorum.New(members, &quorum.Options{MemberTimeout: memberTimeout})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Errorf("close the quorum: %v", err)
		}
	})
	return clients, newClient(t, store)
}

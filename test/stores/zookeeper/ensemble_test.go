package zookeeper

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/test/harness/servers"
)

// quorumTimeout is the session's timeout in tests in which servers fail: longer than the
// election of a leader takes on a busy machine.
const quorumTimeout = 30 * time.Second

// TestRestartKeepsLocksAndPlaces: locks, places and tokens survive a crash of the only server.
func TestRestartKeepsLocksAndPlaces(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.ZooKeeper)
	url := server.URL() + "?timeout=" + quorumTimeout.String()
	holder, waiting := client(t, open(t, url), nil), client(t, open(t, url), nil)
	lease, err := holder.Lock(t.Context(), "kept")
	if err != nil {
		t.Fatal(err)
	}
	next := lockLater(t, waiting, "kept")
	eventually(t, "the waiter watches", func() bool { return watchCount(t, server) == 1 })
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := server.Restart(); err != nil {
		t.Fatal(err)
	}
	if _, err := client(t, open(t, url), nil).TryLock(t.Context(), "kept"); !errors.Is(err, dlock.ErrHeld) {
		t.Errorf("TryLock after the restart: %v; want ErrHeld", err)
	}
	if err := lease.Unlock(t.Context()); err != nil {
		t.Errorf("Unlock after the restart: %v", err)
	}
	got := happens(t, next, "the waiter's turn")
	if got.err != nil {
		t.Fatal(got.err)
	}
	if got.lease.Token() <= lease.Token() {
		t.Errorf("token %d after %d", got.lease.Token(), lease.Token())
	}
	if err := got.lease.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestCallsWaitForAServerAsLongAsTheirCaller: a client with a longer RequestTimeout waits for a
// server for longer than the five seconds of callers without a deadline.
func TestCallsWaitForAServerAsLongAsTheirCaller(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.ZooKeeper)
	c := client(t, open(t, server.URL()+"?timeout="+limit.String()), &dlock.Options{RequestTimeout: limit})
	lease, err := c.Lock(t.Context(), "before")
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	next := lockLater(t, c, "during")
	select {
	case got := <-next:
		t.Fatalf("an answer without a server: %v, %v", got.lease, got.err)
	case <-time.After(7 * time.Second):
	}
	if err := server.Restart(); err != nil {
		t.Fatal(err)
	}
	got := happens(t, next, "the answer after the outage")
	if got.err != nil {
		t.Fatal(got.err)
	}
	for _, l := range []*dlock.Lease{lease, got.lease} {
		if err := l.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

type outcome struct {
	lease *dlock.Lease
	err   error
}

func lockLater(t testing.TB, c *dlock.Client, name string) <-chan outcome {
	t.Helper()
	done := make(chan outcome, 1)
	go func() {
		lease, err := c.Lock(t.Context(), name)
		done <- outcome{lease, err}
	}()
	return done
}

// TestLeaderFailureKeepsLocks: when the leader is killed or hangs, the lock stays with its
// holder, and its Unlock hands it to the waiter.
func TestLeaderFailureKeepsLocks(t *testing.T) {
	t.Parallel()
	ensemble := servers.RunEnsemble(t)
	url := ensemble.URL() + "?timeout=" + quorumTimeout.String()
	patient := &dlock.Options{RequestTimeout: limit} // an election on a busy machine takes its time
	for name, fail := range map[string]func(*servers.Server) error{
		"killed": (*servers.Server).Kill,
		"hangs":  (*servers.Server).Pause,
	} {
		holder, waiting := client(t, open(t, url), patient), client(t, open(t, url), patient)
		lease, err := holder.Lock(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		next := lockLater(t, waiting, name)
		leader, err := ensemble.Leader(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := fail(leader); err != nil {
			t.Fatal(err)
		}
		eventually(t, "another server leads", func() bool {
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			now, err := ensemble.Leader(ctx)
			return err == nil && now != leader
		})
		if _, err := client(t, open(t, url), patient).TryLock(t.Context(), name); !errors.Is(err, dlock.ErrHeld) {
			t.Errorf("%s: TryLock with the new leader: %v; want ErrHeld", name, err)
		}
		select {
		case got := <-next:
			t.Fatalf("%s: the waiter got %v, %v while the lock is held", name, got.lease, got.err)
		default:
		}
		if err := lease.Unlock(t.Context()); err != nil {
			t.Errorf("%s: Unlock: %v", name, err)
		}
		got := happens(t, next, "the waiter's turn")
		if got.err != nil {
			t.Fatalf("%s: the waiter: %v", name, got.err)
		}
		if got.lease.Token() <= lease.Token() {
			t.Errorf("%s: token %d after %d", name, got.lease.Token(), lease.Token())
		}
		if err := got.lease.Unlock(t.Context()); err != nil {
			t.Errorf("%s: Unlock: %v", name, err)
		}
		if name == "killed" {
			err = leader.Restart()
		} else {
			err = leader.Resume()
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := leader.WaitReady(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// TestLeaseEndsInTimeWithoutQuorum: without a quorum the ensemble grants no lock, and a lease
// ends before the session does.
func TestLeaseEndsInTimeWithoutQuorum(t *testing.T) {
	t.Parallel()
	ensemble := servers.RunEnsemble(t)
	const timeout = 4 * time.Second
	url := ensemble.URL() + "?timeout=" + timeout.String()
	lease, err := client(t, open(t, url), nil).Lock(t.Context(), "n")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range ensemble.Members[:2] {
		if err := s.Kill(); err != nil {
			t.Fatal(err)
		}
	}
	killed := time.Now()
	short := &dlock.Options{RequestTimeout: 2 * time.Second}
	if _, err := client(t, open(t, url), short).TryLock(t.Context(), "m"); !errors.Is(err, dlock.ErrUnreachable) {
		t.Errorf("TryLock without a quorum: %v; want ErrUnreachable", err)
	}
	eventually(t, "the session's timeout has passed", func() bool { return time.Since(killed) > timeout })
	if lease.Context().Err() == nil { // which reads the clock
		t.Errorf("the lease has not ended %v after the quorum; the session's timeout is %v", time.Since(killed), timeout)
	}
	if err := lease.Unlock(t.Context()); !errors.Is(err, dlock.ErrNotHeld) {
		t.Errorf("Unlock: %v; want ErrNotHeld", err)
	}
	var restarts sync.WaitGroup
	defer restarts.Wait()
	for _, s := range ensemble.Members[:2] {
		restarts.Go(func() { // neither server is ready before the other
			if err := s.Restart(); err != nil {
				t.Error(err)
			}
		})
	}
	store := open(t, url)
	eventually(t, "a lock", func() bool {
		grant, err := store.Acquire(t.Context(), request("again"))
		return err == nil && store.Release(t.Context(), grant) == nil
	})
}

// TestServerWithoutLeaderGrantsNothing: a server that has lost its leader answers reads for a
// while. A waiter that is the first of the queue there does not get the lock, because its
// session may have ended.
func TestServerWithoutLeaderGrantsNothing(t *testing.T) {
	t.Parallel()
	ensemble := servers.RunEnsemble(t)
	leader, err := ensemble.Leader(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	follower := ensemble.Members[0]
	if follower == leader {
		follower = ensemble.Members[1]
	}
	conn := admin(t, follower.Addr())
	const timeout = 8 * time.Second
	holder, store := open(t, ensemble.URL()), open(t, follower.URL()+"?timeout="+timeout.String())
	grant := acquire(t, holder, request("n"))
	req := request("n")
	req.Queue = true
	if _, err := store.Acquire(t.Context(), req); !errors.Is(err, driver.ErrHeld) {
		t.Fatalf("Acquire: %v; want ErrHeld", err)
	}
	asked := time.Now()
	release(t, holder, grant)
	eventually(t, "the follower knows that the waiter is the first", func() bool { return len(contenders(t, conn, "n")) == 1 })

	eventually(t, "the leader's last confirmation is too old", func() bool { return time.Since(asked) > timeout/16 })
	others := slices.DeleteFunc(slices.Clone(ensemble.Members), func(s *servers.Server) bool { return s == follower })
	for _, s := range others {
		if err := s.Pause(); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if grant, err := store.Acquire(ctx, req); err == nil {
		t.Errorf("a server without a leader granted the lock, with token %d", grant.Token)
	}
	for _, s := range others {
		if err := s.Resume(); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the lock", func() bool {
		grant, err = store.Acquire(t.Context(), req)
		return err == nil
	})
	release(t, store, grant)
}

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
	"github.com/dlock-go/dlock/test/harness/await"
	"github.com/dlock-go/dlock/test/harness/proxy"
	"github.com/dlock-go/dlock/test/harness/servers"
	"github.com/dlock-go/dlock/test/harness/want"
)

// quorumTimeout is the session's timeout in tests in which servers fail: longer than the
// election of a leader takes on a busy machine.
const quorumTimeout = 30 * time.Second

// keepsLock checks that a lock stays with its holder when something happens to the servers, and that its
// Unlock hands it to the waiter.
func keepsLock(t *testing.T, url, name string, fail func()) {
	t.Helper()
	patient := func() *dlock.Client { // an election on a busy machine takes its time
		return client(t, open(t, url+"?timeout="+quorumTimeout.String()), &dlock.Options{RequestTimeout: limit})
	}
	holder, other := patient(), patient()
	lease := want.Value(holder.Lock(t.Context(), name))(t)
	next := want.Locked(t, patient(), name)
	await.Until(t, "the waiter has its place", func() bool {
		info, _, err := holder.Find(t.Context(), name)
		return err == nil && info.Waiters == 1
	})
	fail()
	want.Error(t, "TryLock after the failure", want.Err(other.TryLock(t.Context(), name)), dlock.ErrHeld)
	select {
	case got := <-next:
		t.Fatalf("the waiter got %v while the lock is held", got)
	default:
	}
	want.Unlock(t, lease)
	want.Unlock(t, want.Served(t, next, lease.Token()))
}

// TestRestartKeepsLocksAndPlaces: locks, places and tokens survive a crash of the only server.
func TestRestartKeepsLocksAndPlaces(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.ZooKeeper)
	keepsLock(t, server.URL(), "kept", func() {
		want.OK(t, server.Kill())
		want.OK(t, server.Restart())
	})
}

// TestCallsWaitForAServerAsLongAsTheirCaller: a client with a longer RequestTimeout waits for a
// server for longer than the five seconds of callers without a deadline.
func TestCallsWaitForAServerAsLongAsTheirCaller(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.ZooKeeper)
	c := client(t, open(t, server.URL()+"?timeout="+limit.String()), &dlock.Options{RequestTimeout: limit})
	lease := want.Value(c.Lock(t.Context(), "before"))(t)
	want.OK(t, server.Kill())
	next := want.Locked(t, c, "during")
	select {
	case got := <-next:
		t.Fatalf("an answer without a server: %v", got)
	case <-time.After(7 * time.Second):
	}
	want.OK(t, server.Restart())
	want.Unlock(t, lease, want.Served(t, next, 0))
}

// TestLeaderFailureKeepsLocks: when the leader is killed or hangs, the lock stays with its holder.
func TestLeaderFailureKeepsLocks(t *testing.T) {
	t.Parallel()
	ensemble := servers.RunEnsemble(t)
	for name, does := range map[string]struct{ fail, bringBack func(*servers.Server) error }{
		"killed": {(*servers.Server).Kill, (*servers.Server).Restart},
		"hangs":  {(*servers.Server).Pause, (*servers.Server).Resume},
	} {
		leader := want.Value(ensemble.Leader(t.Context()))(t)
		keepsLock(t, ensemble.URL(), name, func() {
			want.OK(t, does.fail(leader))
			await.Until(t, "another server leads", func() bool {
				ctx, cancel := context.WithTimeout(t.Context(), limit)
				defer cancel()
				now, err := ensemble.Leader(ctx)
				return err == nil && now != leader
			})
		})
		want.OK(t, does.bringBack(leader))
		want.OK(t, leader.WaitReady(t.Context()))
	}
}

// TestLeaseEndsInTimeWithoutQuorum: without a quorum the ensemble grants no lock, and a lease
// ends before the session does.
func TestLeaseEndsInTimeWithoutQuorum(t *testing.T) {
	t.Parallel()
	ensemble := servers.RunEnsemble(t)
	const timeout = 4 * time.Second
	url := ensemble.URL() + "?timeout=" + timeout.String()
	lease := want.Value(client(t, open(t, url), nil).Lock(t.Context(), "n"))(t)
	for _, s := range ensemble.Members[:2] {
		want.OK(t, s.Kill())
	}
	killed := time.Now()
	short := &dlock.Options{RequestTimeout: 2 * time.Second}
	_, err := client(t, open(t, url), short).TryLock(t.Context(), "m")
	want.Error(t, "TryLock without a quorum", err, dlock.ErrUnreachable)
	await.Until(t, "the session's timeout has passed", func() bool { return time.Since(killed) > timeout })
	if lease.Context().Err() == nil { // which reads the clock
		t.Errorf("the lease has not ended %v after the quorum; the session's timeout is %v", time.Since(killed), timeout)
	}
	want.Error(t, "Unlock", lease.Unlock(t.Context()), dlock.ErrNotHeld)
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
	await.Until(t, "a lock", func() bool {
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
	leader := want.Value(ensemble.Leader(t.Context()))(t)
	follower := ensemble.Members[0]
	if follower == leader {
		follower = ensemble.Members[1]
	}
	conn := admin(t, follower.Addr())
	const timeout = 8 * time.Second
	holder, store := open(t, ensemble.URL()), open(t, follower.URL()+"?timeout="+timeout.String())
	grant := want.Acquire(t, holder, request("n"))
	req := queuedRequest(exclusive, "n")
	mustWait(t, store, req)
	asked := time.Now()
	want.Release(t, holder, grant)
	await.Until(t, "the follower knows that the waiter is the first", func() bool { return len(contenders(t, conn, "n")) == 1 })

	await.Until(t, "the leader's last confirmation is too old", func() bool { return time.Since(asked) > timeout/16 })
	others := slices.DeleteFunc(slices.Clone(ensemble.Members), func(s *servers.Server) bool { return s == follower })
	for _, s := range others {
		want.OK(t, s.Pause())
	}
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if grant, err := store.Acquire(ctx, req); err == nil {
		t.Errorf("a server without a leader granted the lock, with token %d", grant.Token)
	}
	for _, s := range others {
		want.OK(t, s.Resume())
	}
	await.Until(t, "the lock", func() bool {
		_, err := store.Acquire(t.Context(), req)
		return err == nil
	})
}

// TestCutOffFollowerIsLeft: a follower that does not hear the leader, and has not noticed it yet,
// answers reads, but neither writes nor renewals. The store goes to another server in time.
func TestCutOffFollowerIsLeft(t *testing.T) {
	t.Parallel()
	leaders := make(map[int][]*proxy.Proxy) // by follower
	const noticesInMinutes = 1800
	ensemble := servers.RunSplitEnsemble(t, noticesInMinutes, func(follower int, addr string) string {
		p := proxy.Run(t, addr)
		leaders[follower] = append(leaders[follower], p)
		return p.Addr()
	})
	leader := want.Value(ensemble.Leader(t.Context()))(t)
	follower := slices.IndexFunc(ensemble.Members, func(s *servers.Server) bool { return s != leader })
	const timeout = 24 * time.Second // the client pings every third of it
	server := proxy.Run(t, ensemble.Members[follower].Addr())
	want.Acquire(t, open(t, leader.URL()), request("held"))
	var stores []driver.Store
	var waiters []driver.Request
	for i := range 8 {
		stores = append(stores, open(t, servers.ZooKeeper.URL(server.Addr())+"?timeout="+timeout.String()))
		waiters = append(waiters, queuedRequest(exclusive, "held"))
		mustWait(t, stores[i], waiters[i])
	}
	server.Redirect(leader.Addr()) // which the next connection leads to
	for _, p := range leaders[follower] {
		p.Hold()
		defer p.Deliver()
	}
	start := time.Now()
	inParallel(len(stores), func(i int) { // asks where its place is, and the leader whether that is true
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		_, err := stores[i].Acquire(ctx, waiters[i])
		took := time.Since(start)
		t.Logf("asked after %v: %v", took, err)
		if !errors.Is(err, driver.ErrHeld) || took > timeout/3 {
			t.Errorf("Acquire after %v: %v; want ErrHeld in less than a third of the session's timeout of %v", took, err, timeout)
		}
	})
	want.Release(t, stores[0], want.Acquire(t, stores[0], request("next")))
}

// TestGrantAfterSilenceEndsBeforeSession: a process that has sent nothing for a while acquires a lock
// over a follower, which stops before it reports that to the leader. The leader counts the session's
// timeout from before the silence, and the grant promises no more than what is left of it.
func TestGrantAfterSilenceEndsBeforeSession(t *testing.T) {
	t.Parallel()
	const timeout = 12 * time.Second
	ensemble := servers.RunEnsemble(t)
	leader := want.Value(ensemble.Leader(t.Context()))(t)
	follower := ensemble.Members[0]
	if follower == leader {
		follower = ensemble.Members[1]
	}
	store, p := throughProxy(t, follower, "?timeout="+timeout.String())
	other := open(t, leader.URL())
	await.Event(t, p.OnRequest(sends(opPing, ""), nil), "a ping")
	const pause = timeout / 3 // between two pings
	pinged := time.Now()
	await.Until(t, "the next ping is close", func() bool { return time.Since(pinged) > pause-pause/10 })

	asked := time.Now()
	grant := want.Acquire(t, store, request("n"))
	want.OK(t, follower.Pause())
	defer func() {
		if err := follower.Resume(); err != nil {
			t.Error(err)
		}
	}()
	granted(t, other, "n")
	if held := time.Since(asked); held < grant.TTL {
		t.Errorf("another owner was granted the lock after %v, although the grant promised it for %v", held, grant.TTL)
	}
}

package redis

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/redislock"
	"github.com/dlock-go/dlock/test/harness/servers"
)

// TestPlannedFailoverKeepsLocksAndWaits: holders keep their locks and waiters keep waiting while an
// administrator makes a replica the master and the master a replica. So do locks that all replicas
// acknowledge while that happens.
func TestPlannedFailoverKeepsLocksAndWaits(t *testing.T) {
	for topology, test := range map[string]struct {
		start    func(*testing.T) (top topology, prepare, failover func(context.Context) error)
		replicas int // all of the master
	}{
		"cluster": {clusterToFailOver, 1}, "sentinel": {sentinelToFailOver, 2}, "one server, and back": {serverToSwap, 1},
	} {
		t.Run(topology, func(t *testing.T) {
			t.Parallel()
			top, prepare, failover := test.start(t)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			var finish []func()
			for _, protocol := range protocols {
				finish = append(finish, survives(t, top, protocol))
			}
			must(t, prepare(ctx))
			for _, protocol := range protocols { // now that all replicas are connected
				finish = append(finish, keepsGrants(t, top, protocol, test.replicas))
			}
			err := failover(ctx)
			for _, f := range finish {
				f()
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
}

// failedOver is the hash tag of the slot whose server fails over.
const failedOver = "{planned}"

func clusterToFailOver(t *testing.T) (top topology, prepare, failover func(context.Context) error) {
	c := servers.RunCluster(t, inMemory...)
	old := agreedMaster(t, c, failedOver)
	replica := c.Nodes[slices.Index(c.Nodes, old)+3]
	return topology{c.URL(), clients(t, c.Nodes.Addrs()...)}, func(context.Context) error { return nil }, func(ctx context.Context) error {
		if err := clients(t, replica.Addr())[0].ClusterFailover(ctx).Err(); err != nil {
			return err
		}
		if _, err := c.WaitFailover(ctx, failedOver, old); err != nil {
			return err
		}
		return c.WaitSettled(ctx)
	}
}

// agreedMaster waits until all nodes know the master of a key: a slow node may be suspected.
func agreedMaster(t *testing.T, c *servers.Cluster, key string) (master *servers.Server) {
	t.Helper()
	eventually(t, "the nodes agree on the master", func() bool {
		var err error
		master, err = c.Master(t.Context(), key)
		return err == nil
	})
	return master
}

func sentinelToFailOver(t *testing.T) (top topology, prepare, failover func(context.Context) error) {
	s := servers.RunSentinel(t, servers.SentinelOptions{Args: inMemory})
	old := s.Servers[0]
	prepare = func(context.Context) error { // Sentinel may promote either of them
		awaitReplicas(t, old.Addr(), 2)
		return nil
	}
	return topology{s.URL(), clients(t, old.Addr())}, prepare, func(ctx context.Context) error {
		sentinel := clients(t, s.Sentinels[0].Addr())[0]
		for { // Sentinel gives up a failover that takes a slow machine too long
			order := sentinel.Do(ctx, "sentinel", "failover", servers.MasterName).Err()
			patience, cancel := context.WithTimeout(ctx, 10*time.Second)
			_, err := s.WaitFailover(patience, old)
			cancel()
			if err == nil {
				return s.WaitSettled(ctx)
			}
			if ctx.Err() != nil {
				return errors.Join(order, err)
			}
		}
	}
}

// serverToSwap returns a server that becomes the replica of another one, and then the master again.
func serverToSwap(t *testing.T) (top topology, prepare, failover func(context.Context) error) {
	args := append([]string{"--repl-diskless-sync-delay", "0"}, inMemory...)
	both := servers.RunGroup(t, 2, servers.Redis, args...)
	raw := clients(t, both.Addrs()...)
	follow(t, raw[1], both[0])
	awaitReplicas(t, both[0].Addr(), 1)
	refused := func(addr string) func() bool {
		client := clients(t, addr)[0]
		return func() bool { return client.Set(t.Context(), "dlock:probe", "1", 0).Err() != nil }
	}
	return topology{both[0].URL(), raw[:1]}, func(context.Context) error { return nil }, func(ctx context.Context) error {
		for _, master := range raw {
			eventually(t, "the failover begins", func() bool { return master.Do(ctx, "failover", "timeout", "20000").Err() == nil })
			eventually(t, "the master has become a replica", refused(master.Options().Addr))
		}
		return nil
	}
}

// survives holds a name for which others wait, and acquires it and other names of its slot all the
// time. The caller calls finish after the failover.
func survives(t *testing.T, top topology, protocol string) (finish func()) {
	t.Helper()
	url, name := top.url+"?protocol="+protocol+"&replicas=1&replica_timeout=2s", failedOver+protocol
	_, holder := openURL(t, url)
	lease := mustLock(t, holder, name, dlock.WithTTL(20*time.Second))
	var waiters []*waiter
	for range 4 {
		_, client := openURL(t, url)
		waiters = append(waiters, waitFor(t.Context(), client, name))
	}
	channel := map[string]string{"redisson": "redisson_lock__channel:", "plain": "dlock:channel:"}[protocol] + name
	eventually(t, "all wait", func() bool {
		n := int64(0)
		for _, server := range top.servers {
			n += server.PubSubNumSub(t.Context(), channel).Val()[channel]
		}
		return n == int64(len(waiters))
	})
	idle, _ := openURL(t, url)
	attempt := func(i int) error {
		_, err := idle.Acquire(t.Context(), driver.Request{Name: fmt.Sprintf("%s-idle-%d", name, i), Owner: driver.NewOwner(), TTL: time.Second})
		return err
	}
	must(t, attempt(0))
	store, _ := openURL(t, url)
	ctx, cancel := context.WithCancel(t.Context())
	var tries sync.WaitGroup
	for i := range 8 {
		tries.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				mine := driver.Request{Name: name, Owner: driver.NewOwner(), TTL: time.Second}
				if i > 0 { // a new name each time, because a lock that was not released in a failover blocks its name
					mine.Name = fmt.Sprintf("%s-%d-%d", name, i, n)
				}
				grant, err := store.Acquire(t.Context(), mine)
				switch {
				case err == nil:
					for _, err := range store.Renew(t.Context(), []driver.Grant{grant}) {
						if !errors.Is(err, driver.ErrUnreachable) && !errors.Is(err, driver.ErrNotHeld) {
							t.Errorf("%s: Renew: %v; want nil or ErrUnreachable", url, err)
						}
					}
					_ = store.Release(t.Context(), grant) // the failover may have lost it
				case i == 0 && errors.Is(err, driver.ErrHeld), errors.Is(err, driver.ErrUnreachable), errors.Is(err, redislock.ErrNotReplicated):
				default:
					t.Errorf("%s: Acquire: %v; want nil or ErrUnreachable", url, err)
					return
				}
			}
		})
	}
	return func() {
		t.Helper()
		cancel()
		tries.Wait()
		if err := attempt(1); err != nil { // in a cluster the old master names the new one
			t.Errorf("%s: Acquire by a store that has not seen the failover: %v", url, err)
		}
		goesOn(t, url, lease, waiters)
	}
}

// goesOn demands that the lease is held and that no wait has ended. Then it lets each waiter have
// the lock.
func goesOn(t *testing.T, url string, lease *dlock.Lease, waiters []*waiter) {
	t.Helper()
	for _, w := range waiters {
		select {
		case <-w.done:
			t.Errorf("%s: the failover ended a wait: %v", url, w.err)
		default:
		}
	}
	if err := context.Cause(lease.Context()); err != nil {
		t.Errorf("%s: the failover ended a lease: %v", url, err)
	}
	if err := lease.Unlock(t.Context()); err != nil {
		t.Errorf("%s: Unlock: %v", url, err)
	}
	for range waiters { // they are served in any order
		served := waitAny(t, waiters)
		if err := served.Unlock(t.Context()); err != nil {
			t.Errorf("%s: Unlock of a waiter: %v", url, err)
		}
	}
}

// waitAny returns the lease of a waiter that is served, once for each of them.
func waitAny(t *testing.T, waiters []*waiter) (lease *dlock.Lease) {
	t.Helper()
	eventually(t, "a waiter is served", func() bool {
		for _, w := range waiters {
			select {
			case <-w.done:
				if w.err == nil && w.lease != nil {
					lease, w.lease = w.lease, nil
					return true
				}
			default:
			}
		}
		return false
	})
	return lease
}

// keepsGrants acquires new names all the time, which all replicas acknowledge. finish, which the caller
// calls after the failover, demands that the new master has all that were granted.
func keepsGrants(t *testing.T, top topology, protocol string, replicas int) (finish func()) {
	t.Helper()
	url, prefix := fmt.Sprintf("%s?protocol=%s&replicas=%d&replica_timeout=2s", top.url, protocol, replicas), failedOver+"granted-"+protocol
	store, _ := openURL(t, url)
	ctx, cancel := context.WithCancel(t.Context())
	granted := make(map[string]uint64)
	var acquiring sync.WaitGroup
	acquiring.Go(func() {
		for n := 0; ctx.Err() == nil; n++ {
			grant, err := store.Acquire(ctx, driver.Request{Name: fmt.Sprintf("%s-%d", prefix, n), Owner: driver.NewOwner(), TTL: time.Hour})
			if err == nil {
				granted[grant.Name] = grant.Token
			}
		}
	})
	return func() {
		t.Helper()
		cancel()
		acquiring.Wait()
		fresh, _ := openURL(t, url)
		all := len(granted)
		for info, err := range fresh.(driver.Lister).List(t.Context(), prefix) {
			if err != nil {
				t.Fatal(err)
			}
			if granted[info.Name] == info.Token {
				delete(granted, info.Name)
			}
		}
		if all == 0 || len(granted) > 0 {
			t.Errorf("%s: the failover lost %d of %d locks that all replicas had", url, len(granted), all)
		}
	}
}

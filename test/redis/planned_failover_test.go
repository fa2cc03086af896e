package redis

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/redislock"
	"github.com/dlock-go/dlock/test/servers"
)

// TestPlannedFailover: holders keep their locks, and waits go on, while an
// administrator makes a replica the master and the master a replica.
func TestPlannedFailover(t *testing.T) {
	t.Run("cluster", func(t *testing.T) {
		t.Parallel()
		c := servers.RunCluster(t, inMemory...)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		old, err := c.Master(ctx, "{planned}")
		if err != nil {
			t.Fatal(err)
		}
		for _, protocol := range protocols {
			survives(t, c.URL()+"?protocol="+protocol+"&"+acknowledged, "{planned}"+protocol, func() {
				replica := c.Nodes[0]
				for i, node := range c.Nodes {
					if node == old {
						replica = c.Nodes[(i+3)%6]
					}
				}
				if err := clients(t, replica.Addr())[0].ClusterFailover(ctx).Err(); err != nil {
					t.Fatal(err)
				}
				if old, err = c.WaitFailover(ctx, "{planned}", old); err != nil {
					t.Fatal(err)
				}
				if err := c.WaitSettled(ctx); err != nil {
					t.Fatal(err)
				}
			})
		}
	})
	t.Run("sentinel", func(t *testing.T) {
		t.Parallel()
		s := servers.RunSentinel(t, servers.SentinelOptions{Args: inMemory})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for _, protocol := range protocols {
			survives(t, s.URL()+"?protocol="+protocol+"&"+acknowledged, "{planned}"+protocol, func() {
				old, err := s.Master(ctx)
				if err != nil {
					t.Fatal(err)
				}
				sentinel := clients(t, s.Sentinels[0].Addr())[0]
				eventually(t, "the sentinel begins", func() bool {
					return sentinel.Do(ctx, "sentinel", "failover", servers.MasterName).Err() == nil
				})
				if _, err := s.WaitFailover(ctx, old); err != nil {
					t.Fatal(err)
				}
				if err := s.WaitSettled(ctx); err != nil {
					t.Fatal(err)
				}
			})
		}
	})
}

// survives holds name, lets many wait for it, tries all the time to acquire it and
// others of the same slot, and lets a failover happen.
func survives(t *testing.T, url, name string, failover func()) {
	t.Helper()
	_, holder := openURL(t, url)
	lease, err := holder.Lock(t.Context(), name, dlock.WithTTL(20*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	var waiters []*waiter
	for range 4 {
		_, client := openURL(t, url)
		waiters = append(waiters, waitFor(t.Context(), client, name))
	}
	store, _ := openURL(t, url)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var tries sync.WaitGroup
	for i := range 8 {
		tries.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				mine := driver.Request{Name: name, Owner: driver.NewOwner(), TTL: time.Second}
				if i > 0 { // a new one each time: what is not released in a failover expires
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
					_ = store.Release(t.Context(), grant) // it may be forgotten
				case i == 0 && errors.Is(err, driver.ErrHeld), errors.Is(err, driver.ErrUnreachable), errors.Is(err, redislock.ErrNotReplicated):
				default:
					t.Errorf("%s: Acquire: %v; want nil or ErrUnreachable", url, err)
					return
				}
			}
		})
	}
	failover()
	cancel()
	tries.Wait()
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
	for range waiters { // in any order
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

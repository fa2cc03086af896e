package quorum_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/backoff"
	"github.com/dlock-go/dlock/quorum"
)

// TestWaiterIsWokenWhenMajorityMayBeFree: a waiter is woken as soon as a majority may be free. Of
// members that are not watched it is not known whether they are free.
func TestWaiterIsWokenWhenMajorityMayBeFree(t *testing.T) {
	for name, c := range map[string]struct {
		mute []int
		want []int64 // wake-ups after the first, second, third release
	}{
		"all are watched":   {nil, []int64{0, 0, 1}},
		"four are watched":  {[]int{4}, []int64{0, 1, 1}},
		"three are watched": {[]int{3, 4}, []int64{1, 2, 3}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all := fakeMembers(5)
				s := open(t, all)
				settle(t, s)
				holder := driver.NewOwner()
				for _, c := range all {
					mustAcquire(t, c.server, driver.Request{Name: "x", Owner: holder, TTL: time.Hour, Floor: 1 << 30})
				}
				for _, i := range c.mute {
					all[i].set(mute)
				}
				var woken atomic.Int64
				req := request("x", time.Minute)
				stop, err := s.Watch(t.Context(), req, func() { woken.Add(1) })
				if err != nil {
					t.Fatal(err)
				}
				defer stop()
				_ = backoff.Sleep(t.Context(), time.Second)
				if _, err := s.Acquire(t.Context(), req); !errors.Is(err, driver.ErrHeld) {
					t.Fatalf("want ErrHeld, got: %v", err)
				}
				woken.Store(0)
				for i, want := range c.want {
					if err := all[i].server.Release(t.Context(), driver.Grant{Name: "x", Owner: holder}); err != nil {
						t.Fatal(err)
					}
					synctest.Wait()
					if got := woken.Load(); got != want {
						t.Errorf("%d members were released: want %d wake-ups, got %d", i+1, want, got)
					}
				}
				all[2].set(mute)
				all[3].set(mute)
				all[4].set(mute)
				if _, err := s.Watch(t.Context(), request("x", time.Minute), func() {}); !errors.Is(err, driver.ErrUnreachable) {
					t.Errorf("with two members of five: want ErrUnreachable, got: %v", err)
				}
			})
		})
	}
}

// queueing is a member in which a watch queues, as in ZooKeeper. It grants the lock to the
// first in its queue only.
type queueing struct{ conn }

func (q queueing) Traits() driver.Traits {
	t := q.conn.Traits()
	t.Queues = true
	return t
}

func (q queueing) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	req.Fair = true
	return q.conn.Acquire(ctx, req)
}

func (q queueing) Watch(ctx context.Context, req driver.Request, wake func()) (func(), error) {
	req.Fair, req.Queue = true, true
	if _, err := q.server.Acquire(ctx, req); err != nil && !errors.Is(err, driver.ErrHeld) {
		return nil, err
	}
	stop, err := q.conn.Watch(ctx, req, wake)
	if err != nil {
		return nil, err
	}
	return func() {
		stop()
		_ = q.server.Release(context.Background(), driver.Grant{Name: req.Name, Owner: req.Owner}) // its place
	}, nil
}

// TestWaitersDoNotJoinMemberQueues: a waiter must not join the queues of members: its own
// attempts, which have other owners, would queue behind it.
func TestWaitersDoNotJoinMemberQueues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := fakeMembers(3)
		client := func() *dlock.Client {
			members := make([]driver.Store, len(all))
			for i, c := range all {
				members[i] = queueing{conn{c}}
			}
			s, err := quorum.New(members, nil)
			if err != nil {
				t.Fatal(err)
			}
			if s.Traits().Queues {
				t.Error("the quorum has Traits.Queues")
			}
			t.Cleanup(func() { s.Close() })
			return dlock.New(s, nil)
		}
		holder, waiting := client(), client()
		defer holder.Close()
		defer waiting.Close()
		lease, err := holder.Lock(t.Context(), "x")
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- waiting.Do(t.Context(), "x", noop, dlock.WithWait(time.Minute)) }()
		_ = backoff.Sleep(t.Context(), 2*time.Second)
		if err := lease.Unlock(t.Context()); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		if err := <-done; err != nil {
			t.Errorf("waiting for a released lock: %v", err)
		}
		if took := time.Since(start); took > 5*time.Second {
			t.Errorf("the waiter got the lock %v after the release", took)
		}
	})
}

// TestLateSubscriptionCountsAsRelease: a member may have been released before it was watched, so
// that a late subscription counts as a release.
func TestLateSubscriptionCountsAsRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := fakeMembers(5)
		s := open(t, all)
		settle(t, s)
		for _, c := range all[3:] {
			c.delay = func() time.Duration { return 10 * time.Millisecond }
		}
		grants := make([]driver.Grant, len(all))
		for i, c := range all {
			grants[i] = mustAcquire(t, c.server, request("x", time.Hour))
		}
		var woken atomic.Int64
		stop, err := s.Watch(t.Context(), request("x", time.Minute), func() { woken.Add(1) })
		if err != nil {
			t.Fatal(err)
		}
		defer stop()
		woken.Store(0)
		for _, i := range []int{3, 4} { // they are not watched yet
			if err := all[i].server.Release(t.Context(), grants[i]); err != nil {
				t.Fatal(err)
			}
		}
		_ = backoff.Sleep(t.Context(), time.Second)
		if n := woken.Load(); n != 0 {
			t.Errorf("two members of five are free: want no wake-up, got %d", n)
		}
		if err := all[0].server.Release(t.Context(), grants[0]); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if woken.Load() == 0 {
			t.Error("three members of five are free: want a wake-up, got none")
		}
	})
}

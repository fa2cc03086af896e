package dlock

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/watchdog"
	"github.com/dlock-go/dlock/memlock"
)

// sharedGroup returns a group whose leader has a grant, and one caller that waits for the decision.
func sharedGroup(t *testing.T, c *Client) (*group, *hold) {
	t.Helper()
	s := c.settings([]Option{WithShared()})
	m := c.newHold(t.Context(), "x", s, nil)
	g := c.newGroup(m)
	sent, err := g.leader.attempt(t.Context(), c.requestTimeout)
	if err == nil {
		err = g.leader.startLease(sent)
	}
	if err != nil {
		t.Fatal(err)
	}
	return g, m
}

// A leader that is lost before its callers are members ends none of them: they try again. Its lock is
// released, because no member will.
func TestLeaderLostBeforeTheDecision(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		c := New(store, nil)
		defer c.Close()
		g, m := sharedGroup(t, c)
		g.leader.lose(watchdog.ErrExpired)
		g.decide(nil)
		if err := g.result(m); !errors.Is(err, errGroupEnded) {
			t.Errorf("the caller of a lost leader: %v; want errGroupEnded", err)
		}
		if cause := m.endCause(); cause != nil {
			t.Errorf("the caller has ended: %v", cause)
		}
		synctest.Wait()
		for info := range store.List(t.Context(), "") {
			t.Errorf("%q is still held", info.Name)
		}
		lc := lockCall{client: c, settings: m.settings, ctx: t.Context()}
		if err := lc.acquire(m); err != nil || m.endCause() != nil {
			t.Errorf("the caller tries again: %v, ended: %v", err, m.endCause())
		}
		if err := m.firstLease.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A leader that Close ended before its callers are members fails them with ErrClosed.
func TestLeaderClosedBeforeTheDecision(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(memlock.New(), nil)
		g, m := sharedGroup(t, c)
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		g.decide(nil)
		if err := g.result(m); !errors.Is(err, ErrClosed) {
			t.Errorf("the caller of a closed leader: %v; want ErrClosed", err)
		}
	})
}

// The context of a member is done as soon as its leader has ended, although the goroutine that ended
// the leader has not come to this member yet. The member cannot be re-entered either.
func TestMemberEndsWithItsLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(memlock.New(), nil)
		defer c.Close()
		g, m := sharedGroup(t, c)
		g.decide(nil)
		ctx := m.context()
		if err := g.result(m); err != nil || ctx.Err() != nil {
			t.Fatalf("not a member: %v, %v", err, ctx.Err())
		}
		g.leader.mu.Lock()
		g.leader.endLocked(ErrLost)
		g.leader.mu.Unlock()
		if ctx.Err() == nil {
			t.Error("the context of a member whose leader is lost is not done")
		}
		if _, err := m.reenter(t.Context(), m.settings.mode); !errors.Is(err, ErrLost) {
			t.Errorf("re-entering a member whose leader is lost: %v", err)
		}
		_ = m.firstLease.Unlock(t.Context()) // it is lost
	})
}

// twoMembers returns two leases of one group.
func twoMembers(t *testing.T, c *Client) (first, second *Lease) {
	t.Helper()
	exclusive, err := c.Lock(t.Context(), "x")
	if err != nil {
		t.Fatal(err)
	}
	leases := make(chan *Lease, 2)
	for range 2 {
		go func() {
			lease, err := c.Lock(t.Context(), "x", WithShared())
			if err != nil {
				t.Error(err)
			}
			leases <- lease
		}()
	}
	synctest.Wait()
	if err := exclusive.Unlock(t.Context()); err != nil {
		t.Fatal(err)
	}
	first, second = <-leases, <-leases
	if first == nil || second == nil || first.hold.leader != second.hold.leader {
		t.Fatal("the two shared leases are not of one group")
	}
	return first, second
}

// Unlock reports a loss, also that of a member which does not ask the store because it is not the
// last one.
func TestUnlockOfAMemberReportsALoss(t *testing.T) {
	for name, lose := range map[string]func(c *Client, leader *hold){
		"that the watchdog has not noticed": func(c *Client, leader *hold) {
			c.watchdog.Forget(&leader.Hold)
			time.Sleep(2 * leader.Grant.TTL)
		},
		"that has not ended the members yet": func(_ *Client, leader *hold) { endUnseen(leader) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				released := make(chan error, 2)
				hooks := Hooks{Released: func(e Event) {
					if e.Err != nil {
						released <- e.Err
					}
				}}
				c := New(memlock.New(), &Options{Hooks: hooks})
				defer c.Close()
				first, second := twoMembers(t, c)
				lose(c, first.hold.leader)
				for _, lease := range []*Lease{first, second} {
					if err := lease.Unlock(t.Context()); !errors.Is(err, ErrNotHeld) || !errors.Is(err, ErrLost) {
						t.Errorf("Unlock of a lost member: %v; want ErrNotHeld and ErrLost", err)
					}
				}
				for range len(released) {
					if err := <-released; !errors.Is(err, ErrNotHeld) {
						t.Errorf("the hook Released of a lost member: %v; want ErrNotHeld", err)
					}
				}
			})
		})
	}
}

// slowRelease is a store that takes long to release a lock.
type slowRelease struct {
	*memlock.Store
	delay time.Duration
}

func (s slowRelease) Release(ctx context.Context, grant driver.Grant) error {
	time.Sleep(s.delay)
	return s.Store.Release(ctx, grant)
}

// A caller that gives up at the moment at which it becomes the only member does not wait for the
// release.
func TestCallerThatGivesUpDoesNotWaitForARelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memlock.New()
		c := New(slowRelease{store, time.Second}, nil)
		defer c.Close()
		g, m := sharedGroup(t, c)
		g.decide(nil)
		began := time.Now()
		g.abandonMember(m)
		if took := time.Since(began); took > 0 {
			t.Errorf("a caller that gives up waits for %v", took)
		}
		time.Sleep(2 * time.Second)
		for info := range store.List(t.Context(), "") {
			t.Errorf("left behind: %+v", info)
		}
	})
}

// A caller that knows only a group without tokens joins the group that began meanwhile, and frees
// the slot. Otherwise each of many readers that arrive together might ask the store.
func TestReaderJoinsTheLatestGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(memlock.New(), nil)
		defer c.Close()
		lock := func() *Lease {
			lease, err := c.Lock(t.Context(), "x", WithShared())
			if err != nil {
				t.Fatal(err)
			}
			return lease
		}
		first := lock()
		old := first.hold.leader.group
		time.Sleep(joinTime)
		second := lock()
		latest := second.hold.leader.group
		if old == latest {
			t.Fatal("a reader has joined a group that has had its grant for long")
		}
		s := c.settings([]Option{WithShared()})
		m := c.newHold(t.Context(), "x", s, nil)
		if g := c.joinOrBegin(m, old, nil); g != latest || m.leader != latest.leader {
			t.Fatal("the caller is not a member of the latest group")
		}
		if c.queue.Callers("x").Occupant != nil {
			t.Error("the slot is not free")
		}
		if err := latest.unlockMember(t.Context(), m); err != nil {
			t.Error(err)
		}
		for _, lease := range []*Lease{first, second} {
			if err := lease.Unlock(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
}

// TestSharedCallerBehindASemaphoreIsRefusedAtOnce: a shared caller whose group came to wait behind a
// caller that wants a permit learns that the name is a semaphore.
func TestSharedCallerBehindASemaphoreIsRefusedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(memlock.New(), nil)
		defer c.Close()
		permit := c.newHold(t.Context(), "x", c.settings([]Option{WithLimit(2)}), nil)
		permit.tryEnter()
		permit.refusal.Store(&driver.HeldError{Name: "x", Mode: permit.settings.mode})
		defer permit.leaveSlot()
		m := c.newHold(t.Context(), "x", c.settings([]Option{WithShared(), WithWait(time.Second)}), nil)
		g := c.newGroup(m)
		if c.queue.Push("x", g.leader, permit) == nil {
			t.Fatal("another caller is behind the permit")
		}
		lc := lockCall{client: c, settings: m.settings, ctx: t.Context()}
		defer lc.stopWaiting()
		began := time.Now()
		if err := lc.awaitDecision(g, m); !errors.Is(err, ErrMode) || time.Since(began) > 0 {
			t.Errorf("a shared caller behind a semaphore: %v after %v; want ErrMode at once", err, time.Since(began))
		}
	})
}

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

// The rules of grants, tenures and claims that are stated in design.md, each in the moment in which it counts.

// lockX locks "x".
func lockX(t *testing.T, c *Client, ctx context.Context, opts ...Option) *Lease {
	t.Helper()
	lease, err := c.Lock(ctx, "x", opts...)
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

// lockXSoon locks "x" in a goroutine, and returns when that waits or has the lock. A call that fails sends nil.
func lockXSoon(c *Client, ctx context.Context, opts ...Option) <-chan *Lease {
	done := make(chan *Lease, 1)
	go func() {
		lease, _ := c.Lock(ctx, "x", opts...)
		done <- lease
	}()
	synctest.Wait()
	return done
}

// makeIdle detaches the only tenure of a grant, as Unlock does, and returns the rest of Unlock.
func makeIdle(l *Lease) (rest func() error) {
	t, g := l.tenure, l.tenure.grant
	g.mu.Lock()
	t.entries, t.stage = 0, unlocked
	g.detachLocked(t)
	g.mu.Unlock()
	t.endContext(ErrReleased)
	return func() error { return g.handOverOrRelease(context.Background()) }
}

// releaseCounter counts the calls of Release, by token.
type releaseCounter struct {
	*memlock.Store
	releases map[uint64]int
}

func (s *releaseCounter) Release(ctx context.Context, g driver.Grant) error {
	s.releases[g.Token]++
	return s.Store.Release(ctx, g)
}

// TestStaleContextDoesNotReenter: a context of an unlocked lease does not re-enter its grant, which was
// handed over to another caller.
func TestStaleContextDoesNotReenter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(memlock.New(), nil)
		defer c.Close()
		x := lockX(t, c, t.Context())
		y, err := c.Lock(x.Context(), "y")
		if err != nil {
			t.Fatal(err)
		}
		next := lockXSoon(c, t.Context())
		_ = x.Unlock(t.Context())
		other := <-next
		if other.tenure.grant != x.tenure.grant {
			t.Fatal("the lock was not handed over")
		}
		if second, err := c.TryLock(y.Context(), "x"); !errors.Is(err, ErrHeld) {
			t.Errorf("a second holder: %v, %v", second, err)
		}
		_, _ = other.Unlock(t.Context()), y.Unlock(t.Context())
	})
}

// TestIdleGrantHasOneOwner: a loss, or Close, that meets a grant between its last tenure and its release
// leaves it to the goroutine that unlocks, which does not hand it over, releases it once, and leaves its
// slot after that. No loss is reported: no caller had the lock.
func TestIdleGrantHasOneOwner(t *testing.T) {
	for _, how := range []string{"loss", "Close"} {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &releaseCounter{memlock.New(), make(map[uint64]int)}
				lost := 0
				c := New(store, &Options{Hooks: Hooks{Lost: func(Event) { lost++ }}})
				first := lockX(t, c, t.Context())
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				next := lockXSoon(c, ctx)
				rest := makeIdle(first)
				g := first.tenure.grant
				if how == "loss" {
					g.lose(watchdog.ErrGone)
				} else {
					go func() { _ = c.Close() }()
				}
				synctest.Wait()
				if n := store.releases[g.Grant.Token]; n != 0 {
					t.Errorf("released %d times by another one", n)
				}
				select {
				case <-next:
					t.Error("the slot was left before the release")
				default:
				}
				if err := rest(); err != nil {
					t.Error(err)
				}
				lease := <-next
				switch {
				case lease == nil && how == "loss":
					t.Error("the next caller did not get the lock")
				case lease != nil && lease.tenure.grant == g:
					t.Error("a grant that had ended was handed over")
				case lease != nil:
					_ = lease.Unlock(t.Context())
				}
				if n := store.releases[g.Grant.Token]; n != 1 {
					t.Errorf("released %d times; want once", n)
				}
				if lost != 0 {
					t.Errorf("%d losses of no lease were reported", lost)
				}
				_ = c.Close()
			})
		})
	}
}

// TestHandOverIsAnnounced: a TryLock that finds the grant idle does not know whether the lock is held, and
// learns it from the hand-over.
func TestHandOverIsAnnounced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(memlock.New(), nil)
		defer c.Close()
		next := lockX(t, c, t.Context())
		waiter := lockXSoon(c, t.Context())
		rest := makeIdle(next)
		began := time.Now()
		tried := make(chan error, 1)
		go func() { _, err := c.TryLock(t.Context(), "x"); tried <- err }()
		synctest.Wait()
		_ = rest()
		if err := <-tried; !errors.Is(err, ErrHeld) || time.Since(began) > 0 {
			t.Errorf("TryLock: %v after %v", err, time.Since(began))
		}
		_ = (<-waiter).Unlock(t.Context())
	})
}

// TestIdleGrantIsNotShared: a shared caller that has found a grant just before its last tenure was detached
// does not share it.
func TestIdleGrantIsNotShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(memlock.New(), nil)
		defer c.Close()
		first := lockX(t, c, t.Context(), WithShared())
		rest := makeIdle(first)
		c.shared.Store("x", first.tenure.grant) // as the caller has read it
		second := lockX(t, c, t.Context(), WithShared())
		if second.tenure.grant == first.tenure.grant {
			t.Error("a grant that is about to be released is shared")
		}
		_, _ = rest(), second.Unlock(t.Context())
	})
}

// TestDowngradedGrantIsNotShared: a new reader has a larger token than the exclusive lease before it.
func TestDowngradedGrantIsNotShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := New(memlock.New(), nil)
		defer c.Close()
		writer := lockX(t, c, t.Context())
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		waiting := lockXSoon(c, ctx, WithShared())
		if err := writer.Downgrade(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, reader := range []*Lease{<-waiting, lockX(t, c, ctx, WithShared())} {
			if reader.tenure.grant == writer.tenure.grant || reader.Token() < writer.Token()+c.traits.TokenStep {
				t.Errorf("a reader with token %d shares the grant of the writer with token %d", reader.Token(), writer.Token())
			}
			_ = reader.Unlock(t.Context())
		}
		_ = writer.Unlock(t.Context())
	})
}

// TestReportAfterTheRelease: what the store reports about a grant that was released changes nothing.
func TestReportAfterTheRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &reporter{Store: memlock.New()}
		released, lost := 0, 0
		c := New(store, &Options{Hooks: Hooks{Released: func(Event) { released++ }, Lost: func(Event) { lost++ }}})
		defer c.Close()
		lease := lockX(t, c, t.Context())
		if err := lease.Unlock(t.Context()); err != nil {
			t.Fatal(err)
		}
		next := lockX(t, c, t.Context())
		store.revoke[0]()
		if cause := context.Cause(lease.Context()); !errors.Is(cause, ErrReleased) {
			t.Errorf("the context of the released lease ended with: %v", cause)
		}
		if err := next.Context().Err(); err != nil || released != 1 || lost != 0 {
			t.Errorf("the next lease: %v; %d released, %d lost; want 1 and 0", err, released, lost)
		}
		if err := next.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// lateContext is a context that has ended before a goroutine that waits for it notices.
type lateContext struct {
	context.Context
	err error
}

func (c *lateContext) Done() <-chan struct{} { return nil }
func (c *lateContext) Err() error            { return c.err }

// TestPassedClaimIsUndone: a caller that gives up passes its place in the store to the next one. If that
// one gives up while it waits, or at the moment of its admission, no place is left.
func TestPassedClaimIsUndone(t *testing.T) {
	for _, onAdmission := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			store := memlock.New()
			c, other := New(store, nil), New(store, nil)
			defer c.Close()
			defer other.Close()
			reader := lockX(t, other, t.Context(), WithShared())
			ctx, cancel := context.WithCancel(t.Context())
			first := lockXSoon(c, ctx) // has a place in the store
			late := &lateContext{Context: t.Context()}
			heir := lockXSoon(c, map[bool]context.Context{false: ctx, true: late}[onAdmission])
			waiters := func() (n int) {
				for info := range store.List(t.Context(), "") {
					n += info.Waiters
				}
				return n
			}
			if n := waiters(); n != 1 {
				t.Errorf("%d callers have a place; want 1", n)
			}
			late.err = context.Canceled
			cancel()
			<-first
			if <-heir != nil {
				t.Error("a caller got the lock after its context had ended")
			}
			synctest.Wait()
			if n := waiters(); n != 0 {
				t.Errorf("on admission %v: %d places are left", onAdmission, n)
			}
			_ = reader.Unlock(t.Context())
		})
	}
}

// forgetful is a remote store of which some answers arrive late or never.
type forgetful struct {
	remote
	attempts int
}

func (s *forgetful) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	s.attempts++
	grant, err := s.remote.Acquire(ctx, req)
	switch s.attempts {
	case 1: // too late: the lock has expired
		time.Sleep(req.TTL)
		return grant, err
	case 2: // never: the owner has a new grant, with another token
		return driver.Grant{}, ErrUnreachable
	}
	return grant, err
}

// TestLateGrantOfAnOwnerIsUndone: what a caller gives up is released by its owner alone. It may have another
// token than the last one that the store has told.
func TestLateGrantOfAnOwnerIsUndone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &forgetful{remote: remote{memlock.New()}}
		c := New(store, nil)
		defer c.Close()
		b := bidFor(t, c, "x", c.settings([]Option{WithTTL(time.Second)}))
		b.occupy()
		for range 2 {
			if err := b.claim.attempt(t.Context(), b.call.client.clock.NoLaterThanNow(), time.Hour); !errors.Is(err, ErrUnreachable) {
				t.Errorf("attempt %d: %v", store.attempts, err)
			}
		}
		b.abandon()
		synctest.Wait()
		for info := range store.List(t.Context(), "") {
			t.Errorf("left behind: %+v", info)
		}
	})
}

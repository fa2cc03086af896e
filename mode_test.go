package dlock_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/memlock"
)

// TestSharedHoldersExcludeExclusiveOnes: many shared holders or one exclusive, in one process and
// in several.
func TestSharedHoldersExcludeExclusiveOnes(t *testing.T) {
	for _, clients := range []int{1, 2} {
		bubble(t, func(t *testing.T, store *memlock.Store) {
			c := make([]*dlock.Client, clients)
			for i := range c {
				c[i] = dlock.New(store, nil)
				defer c[i].Close()
			}
			other := c[clients-1]
			first := mustLock(t, c[0], t.Context(), "x", dlock.WithShared())
			second := mustLock(t, other, t.Context(), "x", dlock.WithShared())
			if first.Token() >= second.Token() {
				t.Errorf("tokens %d, %d; want rising ones", first.Token(), second.Token())
			}
			for _, client := range c {
				if _, err := client.TryLock(t.Context(), "x"); !errors.Is(err, dlock.ErrHeld) {
					t.Errorf("an exclusive lock beside shared ones: %v", err)
				}
			}
			mustUnlock(t, first)
			if first.Context().Err() == nil || second.Context().Err() != nil {
				t.Error("an unlock ends the context of its own lease and of no other")
			}
			if _, err := other.TryLock(t.Context(), "x"); !errors.Is(err, dlock.ErrHeld) {
				t.Errorf("an exclusive lock beside a shared one: %v", err)
			}
			mustUnlock(t, second)
			exclusive := mustLock(t, c[0], t.Context(), "x", dlock.WithWait(time.Minute))
			for _, client := range c {
				if _, err := client.TryLock(t.Context(), "x", dlock.WithShared()); !errors.Is(err, dlock.ErrHeld) {
					t.Errorf("a shared lock beside an exclusive one: %v", err)
				}
			}
			mustUnlock(t, exclusive)
		})
	}
}

// TestReadersOfOneProcessShareAnEntry: a thousand shared holders cost the store a few acquisitions.
func TestReadersOfOneProcessShareAnEntry(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Store) {
		counted := &counting{Store: store}
		c := dlock.New(counted, nil)
		defer c.Close()
		leases := make([]*dlock.Lease, 1000)
		var wg sync.WaitGroup
		for i := range leases {
			wg.Go(func() { leases[i] = mustLock(t, c, t.Context(), "x", dlock.WithShared()) })
		}
		wg.Wait()
		tokens := make(map[uint64]bool)
		for _, lease := range leases {
			tokens[lease.Token()] = true
		}
		// Callers that come within 50 ms share a grant; chance may begin some anew.
		if n := counted.acquires.Load(); n > int64(len(leases)/4) || len(tokens) != len(leases) {
			t.Errorf("%d acquisitions in the store and %d tokens for %d leases", n, len(tokens), len(leases))
		}
		time.Sleep(time.Minute) // renewals
		for _, lease := range leases {
			if lease.Context().Err() != nil {
				t.Fatal("a shared lease was lost")
			}
			mustUnlock(t, lease)
		}
		mustUnlock(t, mustLock(t, c, t.Context(), "x"))
	})
}

// TestWriterIsNotStarved: an exclusive caller gets the lock although shared callers of several
// processes come all the time.
func TestWriterIsNotStarved(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Store) {
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for range 3 {
			c := dlock.New(store, nil)
			defer c.Close()
			for range 8 {
				wg.Go(func() {
					for ctx.Err() == nil {
						if lease, err := c.Lock(ctx, "x", dlock.WithShared()); err == nil {
							time.Sleep(7 * time.Millisecond)
							mustUnlock(t, lease)
						}
					}
				})
			}
		}
		time.Sleep(time.Second)
		writer := dlock.New(store, nil)
		defer writer.Close()
		for range 10 {
			began := time.Now()
			lease, err := writer.Lock(t.Context(), "x", dlock.WithWait(time.Second))
			if err != nil {
				t.Error(err)
				break
			}
			if waited := time.Since(began); waited > 200*time.Millisecond {
				t.Errorf("an exclusive caller waited %v", waited)
			}
			mustUnlock(t, lease)
			time.Sleep(time.Millisecond)
		}
		stop()
		wg.Wait()
	})
}

// TestReentryInModes: what a caller that holds a name may lock again.
func TestReentryInModes(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Store) {
		c := dlock.New(store, nil)
		defer c.Close()
		shared := mustLock(t, c, t.Context(), "x", dlock.WithShared())
		if _, err := c.Lock(shared.Context(), "x"); !errors.Is(err, dlock.ErrMode) {
			t.Fatalf("an upgrade: %v; want ErrMode at once", err)
		}
		go func() { // an exclusive caller waits
			if lease, err := c.Lock(t.Context(), "x"); err == nil {
				mustUnlock(t, lease)
			}
		}()
		synctest.Wait()
		inner, err := c.Lock(shared.Context(), "x", dlock.WithShared())
		if err != nil {
			t.Fatalf("shared inside shared while an exclusive caller waits: %v", err)
		}
		mustUnlock(t, inner)
		mustUnlock(t, shared)
		exclusive := mustLock(t, c, t.Context(), "x")
		inner, err = c.Lock(exclusive.Context(), "x", dlock.WithShared())
		if err != nil {
			t.Fatalf("shared inside exclusive: %v", err)
		}
		mustUnlock(t, inner)
		if _, err := c.Lock(exclusive.Context(), "x", dlock.WithLimit(2)); !errors.Is(err, dlock.ErrMode) {
			t.Errorf("a permit of a name that the caller holds as a lock: %v", err)
		}
		mustUnlock(t, exclusive)
	})
}

// TestDowngrade: an exclusive lease becomes a shared one, and no exclusive caller comes in between.
func TestDowngrade(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Store) {
		c, other := dlock.New(store, nil), dlock.New(store, nil)
		defer c.Close()
		defer other.Close()
		lease := mustLock(t, c, t.Context(), "x")
		token := lease.Token()
		var readers sync.WaitGroup
		for _, client := range []*dlock.Client{c, other} {
			readers.Go(func() { mustUnlock(t, mustLock(t, client, t.Context(), "x", dlock.WithShared())) })
		}
		synctest.Wait()
		if err := lease.Downgrade(t.Context()); err != nil {
			t.Fatal(err)
		}
		readers.Wait()
		for _, client := range []*dlock.Client{c, other} {
			if _, err := client.TryLock(t.Context(), "x"); !errors.Is(err, dlock.ErrHeld) {
				t.Errorf("an exclusive lock beside a downgraded one: %v", err)
			}
		}
		if lease.Token() != token || lease.Context().Err() != nil {
			t.Error("a downgrade changed the token, or ended the context")
		}
		if _, err := c.Lock(lease.Context(), "x"); !errors.Is(err, dlock.ErrMode) {
			t.Errorf("an upgrade after a downgrade: %v", err)
		}
		mustUnlock(t, lease)
		if err := lease.Downgrade(t.Context()); !errors.Is(err, dlock.ErrNotHeld) {
			t.Errorf("a downgrade after the unlock: %v", err)
		}
		mustUnlock(t, mustLock(t, other, t.Context(), "x"))
	})
}

// TestPermits: a semaphore admits as many holders as its limit, of any process, and the next one when
// a permit is released.
func TestPermits(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Store) {
		const limit = 3
		var holders, most atomic.Int64
		var wg sync.WaitGroup
		for range 3 {
			c := dlock.New(store, nil)
			defer c.Close()
			for range 10 {
				wg.Go(func() {
					for range 5 {
						lease := mustLock(t, c, t.Context(), "x", dlock.WithLimit(limit))
						most.Store(max(most.Load(), holders.Add(1)))
						time.Sleep(time.Millisecond)
						holders.Add(-1)
						mustUnlock(t, lease)
					}
				})
			}
		}
		wg.Wait()
		if most.Load() != limit {
			t.Errorf("%d holders at a time; want %d", most.Load(), limit)
		}
	})
}

// TestModesThatDoNotFit: a name that is in use in another mode is refused at once, also to a waiter.
func TestModesThatDoNotFit(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Store) {
		c, other := dlock.New(store, nil), dlock.New(store, nil)
		defer c.Close()
		defer other.Close()
		permit := mustLock(t, c, t.Context(), "x", dlock.WithLimit(2))
		for name, opts := range map[string][]dlock.Option{
			"exclusive": nil, "shared": {dlock.WithShared()}, "another limit": {dlock.WithLimit(3)},
		} {
			if _, err := other.Lock(t.Context(), "x", opts...); !errors.Is(err, dlock.ErrMode) {
				t.Errorf("%s: %v; want ErrMode", name, err)
			}
		}
		mustUnlock(t, permit)
		lock := mustLock(t, other, t.Context(), "x")
		if _, err := c.Lock(t.Context(), "x", dlock.WithLimit(2)); !errors.Is(err, dlock.ErrMode) {
			t.Errorf("a permit of a lock: %v; want ErrMode", err)
		}
		mustUnlock(t, lock)
		for name, opts := range map[string][]dlock.Option{
			"no permits": {dlock.WithLimit(0)}, "less": {dlock.WithLimit(-1)}, "both": {dlock.WithLimit(2), dlock.WithShared()},
		} {
			if lease, err := c.Lock(t.Context(), "x", opts...); err == nil {
				t.Errorf("%s: got %v", name, lease)
			}
		}
	})
}

// TestSharedWithOtherSettings: shared callers of one process whose TTLs differ hold the name together.
func TestSharedWithOtherSettings(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Store) {
		c := dlock.New(store, nil)
		defer c.Close()
		all := [][]dlock.Option{
			{dlock.WithShared()}, {dlock.WithShared(), dlock.WithTTL(time.Minute)}, {dlock.WithShared(), dlock.WithFixedTTL(time.Minute)},
			{dlock.WithShared(), dlock.WithWait(0)}, {dlock.WithShared(), dlock.WithFair()}, {dlock.WithShared(), dlock.WithTTL(time.Hour), dlock.WithWait(0)},
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var leases []*dlock.Lease
		for _, opts := range all {
			leases = append(leases, mustLock(t, c, ctx, "x", opts...))
		}
		set, err := c.LockAll(t.Context(), []string{"x", "y"}, dlock.WithShared())
		if err != nil {
			t.Fatal(err)
		}
		leases = append(leases, mustLock(t, c, t.Context(), "y", dlock.WithShared()))
		for _, lease := range leases {
			mustUnlock(t, lease)
		}
		if err := set.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
		mustUnlock(t, mustLock(t, c, t.Context(), "x"))
	})
}

// TestLossEndsAllMembers: shared leases of a process that share an entry are lost together, and each loss
// is reported.
func TestLossEndsAllMembers(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Store) {
		var lost atomic.Int64
		c := dlock.New(store, &dlock.Options{Hooks: dlock.Hooks{Lost: func(dlock.Event) { lost.Add(1) }}})
		defer c.Close()
		a, b := mustLock(t, c, t.Context(), "x", dlock.WithShared()), mustLock(t, c, t.Context(), "x", dlock.WithShared())
		for info := range c.Locks(t.Context(), "x") {
			if err := c.Break(t.Context(), "x", info.Token); err != nil {
				t.Fatal(err)
			}
		}
		for _, lease := range []*dlock.Lease{a, b} {
			select {
			case <-lease.Context().Done():
			case <-time.After(dlock.DefaultTTL):
			}
			if cause := context.Cause(lease.Context()); !errors.Is(cause, dlock.ErrLost) {
				t.Errorf("the context ended with %v", cause)
			}
			if err := lease.Unlock(t.Context()); !errors.Is(err, dlock.ErrNotHeld) {
				t.Errorf("Unlock of a lost lease: %v", err)
			}
		}
		synctest.Wait()
		if lost.Load() != 2 {
			t.Errorf("%d losses were reported; want 2", lost.Load())
		}
	})
}

// TestExclusiveLockIsNotHandedOverToSharedCallers: a shared waiter of the process gets the lock from
// the store, so that shared callers of other processes come in with it.
func TestExclusiveLockIsNotHandedOverToSharedCallers(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Store) {
		c, other := dlock.New(store, nil), dlock.New(store, nil)
		defer c.Close()
		defer other.Close()
		lease := lockInCrowd(t, c)
		next := lockSoon(c, t.Context(), dlock.WithShared())
		mustUnlock(t, lease)
		reader := <-next
		if reader.err != nil {
			t.Fatal(reader.err)
		}
		second, err := other.TryLock(t.Context(), "x", dlock.WithShared())
		if err != nil {
			t.Fatalf("a shared lock beside a shared one: %v", err)
		}
		mustUnlock(t, second)
		mustUnlock(t, reader.lease)
	})
}

// TestMembersHaveTokensOfTheGrant: a grant admits as many shared callers as it has tokens, and the next
// ones have larger tokens, in whichever process.
func TestMembersHaveTokensOfTheGrant(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Store) {
		c, other := dlock.New(store, nil), dlock.New(store, nil)
		defer c.Close()
		defer other.Close()
		exclusive := mustLock(t, c, t.Context(), "x")
		leases := make([]*dlock.Lease, 1200)
		var readers sync.WaitGroup
		for i := range leases[:1100] { // more than a grant has tokens
			readers.Go(func() { leases[i] = mustLock(t, c, t.Context(), "x", dlock.WithShared()) })
		}
		synctest.Wait() // all of them wait
		mustUnlock(t, exclusive)
		readers.Wait()
		for i := range leases[1100:] { // one after another
			leases[1100+i] = mustLock(t, c, t.Context(), "x", dlock.WithShared())
		}
		last := mustLock(t, other, t.Context(), "x", dlock.WithShared())
		seen := make(map[uint64]bool)
		for _, lease := range leases {
			if token := lease.Token(); seen[token] || token >= last.Token() {
				t.Fatalf("token %d was granted twice, or before token %d", token, last.Token())
			}
			seen[lease.Token()] = true
			mustUnlock(t, lease)
		}
		mustUnlock(t, last)
	})
}

package dlock_test

import (
	"context"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/memlock"
)

// A process whose callers do not wait for each other asks for one token at a time.
func TestTokensAreNotWasted(t *testing.T) {
	bubble(t, func(t *testing.T, store *memlock.Store) {
		c := dlock.New(store, nil)
		defer c.Close()
		for want := uint64(1); want < 10; want++ {
			lease := mustLock(t, c, t.Context(), "x")
			if lease.Token() != want {
				t.Errorf("token %d; want %d", lease.Token(), want)
			}
			mustUnlock(t, lease)
		}
	})
}

// A hold asks for twice the tokens that were used of the last grant: a crowd soon gets many,
// and callers that cannot hand over to each other waste few.
func TestSpansFollowTheirUse(t *testing.T) {
	bubble(t, func(t *testing.T, inner *memlock.Store) {
		store := &callCounter{Store: inner}
		c := dlock.New(store, nil)
		defer c.Close()
		const locks = 1000
		relay := func(opts ...dlock.Option) (grants int64, tokens uint64) {
			lease := lockInCrowd(t, c)
			before, first := store.acquires.Load(), lease.Token()
			for i := range locks {
				next := lockSoon(c, t.Context(), opts[i%len(opts)])
				mustUnlock(t, lease)
				lease = (<-next).lease
			}
			mustUnlock(t, lease)
			return store.acquires.Load() - before, lease.Token() - first
		}
		if grants, _ := relay(dlock.WithTTL(time.Minute)); grants > 8 {
			t.Errorf("%d grants for %d hand-overs", grants, locks)
		}
		if grants, tokens := relay(dlock.WithTTL(time.Minute), dlock.WithTTL(time.Hour)); grants != locks || tokens > 20*locks {
			t.Errorf("%d grants and %d tokens for %d locks that cannot be handed over", grants, tokens, locks)
		}
	})
}

// A chain of hand-overs uses no token twice, and none that the store has not granted.
func TestHandOverEndsWithTheSpan(t *testing.T) {
	bubble(t, func(t *testing.T, inner *memlock.Store) {
		store := &limitedSpan{callCounter{Store: inner}, 3}
		c := dlock.New(store, nil)
		defer c.Close()
		lease := lockInCrowd(t, c)
		acquires := store.acquires.Load()
		for range 11 {
			next := lockSoon(c, t.Context())
			mustUnlock(t, lease)
			got := <-next
			if got.err != nil {
				t.Fatal(got.err)
			}
			if got.lease.Token() <= lease.Token() {
				t.Errorf("token %d after %d", got.lease.Token(), lease.Token())
			}
			lease = got.lease
		}
		if a := store.acquires.Load() - acquires; a != 3 {
			t.Errorf("%d grants for 11 locks with spans of 3; want 3", a)
		}
		mustUnlock(t, lease)
	})
}

// limitedSpan grants fewer tokens than were asked for.
type limitedSpan struct {
	callCounter
	most uint64
}

func (s *limitedSpan) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	req.Span = min(req.Span, s.most)
	return s.callCounter.Acquire(ctx, req)
}

// generousSpan grants more tokens than were asked for, so that a missing token is never the reason
// why a lock is not handed over.
type generousSpan struct{ callCounter }

func (s *generousSpan) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	req.Span += 16
	return s.callCounter.Acquire(ctx, req)
}

package redis

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/redis/go-redis/v9"
)

// TestWaiterWithTornPlaceIsServedOnce: an operator or another program removed a waiter's place from
// one of the two keys of the queue. After its next attempt the waiter has one place, and is served.
func TestWaiterWithTornPlaceIsServedOnce(t *testing.T) {
	t.Parallel()
	server, raw := run(t)
	const queue, timeouts = "redisson_lock_queue:{torn}", "redisson_lock_timeout:{torn}"
	store, _ := openURL(t, server.URL())
	for what, tear := range map[string]func(owner string) error{
		"the list lost it":     func(owner string) error { return raw.LRem(t.Context(), queue, 0, owner).Err() },
		"the timeouts lost it": func(owner string) error { return raw.ZRem(t.Context(), timeouts, owner).Err() },
		// So many waiters are ahead that no attempt reads the whole list.
		"it is far behind": func(owner string) error {
			ahead := make([]any, 0, 150)
			var due []redis.Z
			for range 150 {
				id := driver.NewOwner().Hex()
				ahead, due = append(ahead, id), append(due, redis.Z{Score: float64(time.Now().Add(time.Hour).UnixMilli()), Member: id})
			}
			return errors.Join(raw.LPush(t.Context(), queue, ahead...).Err(), raw.ZAdd(t.Context(), timeouts, due...).Err())
		},
	} {
		holder := acquireOne(t, store, "torn")
		req := driver.Request{Name: "torn", Owner: driver.NewOwner(), TTL: time.Minute, Fair: true, Queue: true}
		for i := range 3 {
			if i == 1 {
				must(t, tear(req.Owner.Hex()))
			}
			if _, err := store.Acquire(t.Context(), req); !errors.Is(err, driver.ErrHeld) {
				t.Fatalf("%s: Acquire: %v; want ErrHeld", what, err)
			}
		}
		list := raw.LRange(t.Context(), queue, 0, -1).Val()
		places := len(slices.DeleteFunc(slices.Clone(list), func(id string) bool { return id != req.Owner.Hex() }))
		score, err := raw.ZScore(t.Context(), timeouts, req.Owner.Hex()).Result()
		if places != 1 || err != nil || score == 0 {
			t.Fatalf("%s: the waiter has %d places in the list, and until %v (%v); want one", what, places, score, err)
		}
		mustRelease(t, store, holder)
		for _, ahead := range list[:len(list)-1] {
			must(t, errors.Join(raw.LRem(t.Context(), queue, 0, ahead).Err(), raw.ZRem(t.Context(), timeouts, ahead).Err()))
		}
		grant, err := store.Acquire(t.Context(), req)
		if err != nil {
			t.Fatalf("%s: Acquire at the head: %v", what, err)
		}
		mustRelease(t, store, grant)
	}
}

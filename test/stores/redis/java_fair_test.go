package redis

import (
	"errors"
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/redis/go-redis/v9"
)

// TestQueueOfJavaDoesNotExpire: a waiter of dlock that leaves the queue, because it gave up or was
// granted the lock, leaves it to waiters of Redisson without an expiry. Redisson sets none, and its
// waiters would lose their places and their notification at once.
func TestQueueOfJavaDoesNotExpire(t *testing.T) {
	t.Parallel()
	server, raw := run(t)
	store, _ := openURL(t, server.URL())
	for name, leave := range map[string]func(holder driver.Grant, waiter driver.Request){
		"gives up": func(_ driver.Grant, waiter driver.Request) {
			err := store.Release(t.Context(), driver.Grant{Name: waiter.Name, Owner: waiter.Owner})
			if !errors.Is(err, driver.ErrNotHeld) {
				t.Errorf("Release of a waiter: %v; want ErrNotHeld", err)
			}
		},
		"is granted": func(holder driver.Grant, waiter driver.Request) {
			mustRelease(t, store, holder)
			mustAcquire(t, store, waiter)
		},
	} {
		holder, waiter := inMode(driver.Mode{}, name), inMode(driver.Mode{}, name)
		holder.Fair, waiter.Fair, waiter.Queue = true, true, true
		grant := mustAcquire(t, store, holder)
		mustBeRefused(t, store, waiter)
		const thread = "0d2a3a52-7f0b-4a3c-9d2b-0123456789ab:7"
		keys := []string{"redisson_lock_queue:{" + name + "}", "redisson_lock_timeout:{" + name + "}"}
		due := float64(time.Now().Add(5 * time.Minute).UnixMilli())
		if err := errors.Join(raw.RPush(t.Context(), keys[0], thread).Err(),
			raw.ZAdd(t.Context(), keys[1], redis.Z{Score: due, Member: thread}).Err()); err != nil {
			t.Fatal(err)
		}
		leave(grant, waiter)
		for _, key := range keys {
			if left := raw.PTTL(t.Context(), key).Val(); left != -1 {
				t.Errorf("%s: %s expires in %v; want that it does not expire", name, key, left)
			}
		}
	}
}

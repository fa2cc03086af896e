package redislock

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"
)

// TestLateRepairReplacesNoNewerWaiter: a channel that was lost twice is repaired twice, and the
// later repair must not undo the earlier one.
func TestLateRepairReplacesNoNewerWaiter(t *testing.T) {
	t.Parallel()
	none := func(context.Context, ...string) *redis.PubSub { return nil }
	s := &shardedWatch{channel: "c"}
	first, late := newWaiter(func() {}, false), newWaiter(func() {}, false)
	second := newWaiter(func() { t.Error("the waiter is notified after stop") }, false)
	here, there := newSubscriptions(none, true), newSubscriptions(none, true)
	if _, replaced := s.replace(nil, here, first); !replaced {
		t.Fatal("the first waiter was rejected")
	}
	if before, replaced := s.replace(first, there, second); !replaced || before != here {
		t.Fatalf("replaced: %v, before: %p; want the second waiter to replace the first, at %p", replaced, before, here)
	}
	if _, replaced := s.replace(first, here, late); replaced {
		t.Error("a late repair has replaced a newer waiter")
	}
	s.stop()
	second.wake.Notify()
	if _, replaced := s.replace(second, here, late); replaced {
		t.Error("a repair has replaced the waiter after stop")
	}
}

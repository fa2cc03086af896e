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
	here, there := newSubscriptions(newTasks(), none, true), newSubscriptions(newTasks(), none, true)
	first, late := newWaiter(here, "c", func() {}, false), newWaiter(here, "c", func() {}, false)
	second := newWaiter(there, "c", func() { t.Error("the waiter is notified after stop") }, false)
	if !s.replace(nil, first) {
		t.Fatal("the first waiter was rejected")
	}
	if !s.replace(first, second) {
		t.Fatal("the second waiter did not replace the first")
	}
	if s.replace(first, late) {
		t.Error("a late repair has replaced a newer waiter")
	}
	s.stop()
	second.wake.Notify()
	if s.replace(second, late) {
		t.Error("a repair has replaced the waiter after stop")
	}
}

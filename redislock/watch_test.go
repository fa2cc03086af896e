package redislock

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"
)

// TestLateRepairReplacesNoNewerListener: a channel that was lost twice is repaired twice, and the
// later repair must not undo the earlier one.
func TestLateRepairReplacesNoNewerListener(t *testing.T) {
	t.Parallel()
	none := func(context.Context, ...string) *redis.PubSub { return nil }
	s := &shardedWatch{channel: "c"}
	here, there := newSubscriptions(newTasks(), none, true), newSubscriptions(newTasks(), none, true)
	first, late := newListener(here, "c", func() {}, false), newListener(here, "c", func() {}, false)
	second := newListener(there, "c", func() { t.Error("the listener is notified after stop") }, false)
	if !s.replace(nil, first) {
		t.Fatal("the first listener was rejected")
	}
	if !s.replace(first, second) {
		t.Fatal("the second listener did not replace the first")
	}
	if s.replace(first, late) {
		t.Error("a late repair has replaced a newer listener")
	}
	s.stop()
	second.wake.Notify()
	if s.replace(second, late) {
		t.Error("a repair has replaced the listener after stop")
	}
}

package redislock

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"
)

// TestOnlyOneRepairReplaces: a channel that was lost twice is looked for twice,
// and whoever comes late must not undo what the other has done.
func TestOnlyOneRepairReplaces(t *testing.T) {
	t.Parallel()
	none := func(context.Context) *redis.PubSub { return nil }
	s := &shardWatch{channel: "c"}
	first, second, late := &watcher{}, &watcher{}, &watcher{}
	here, there := newSubscriber(none, true), newSubscriber(none, true)
	if _, replaced := s.replace(nil, here, first); !replaced {
		t.Fatal("the first watcher was refused")
	}
	if before, replaced := s.replace(first, there, second); !replaced || before != here {
		t.Fatalf("replaced: %v, before: %p; want the second watcher to replace the first, at %p", replaced, before, here)
	}
	if _, replaced := s.replace(first, here, late); replaced {
		t.Error("a late repair has replaced the watcher of another")
	}
	s.stop()
	second.call(func() { t.Error("the watcher is called after stop") })
	if _, replaced := s.replace(second, here, late); replaced {
		t.Error("a repair has replaced the watcher after stop")
	}
}

package ending

import (
	"context"
	"errors"
	"testing"
)

// TestFollowersEndInTheSameGoroutine: also followers of followers, and one that follows after the end. One
// that stopped to follow goes on.
func TestFollowersEndInTheSameGoroutine(t *testing.T) {
	contextOf := func() (context.Context, *Ending) {
		ctx, cancel := context.WithCancelCause(t.Context())
		return ctx, New(cancel)
	}
	_, first := contextOf()
	second, its := contextOf()
	third, last := contextOf()
	stopped, e := contextOf()
	first.Follow(its)
	its.Follow(last)
	stop := first.Follow(e)
	stop()
	cause := errors.New("the end")
	first.End(cause)
	late, afterwards := contextOf()
	first.Follow(afterwards)
	for name, ctx := range map[string]context.Context{"a follower": second, "its follower": third, "one that comes late": late} {
		if !errors.Is(context.Cause(ctx), cause) {
			t.Errorf("%s ended with: %v", name, context.Cause(ctx))
		}
	}
	if stopped.Err() != nil {
		t.Error("one that does not follow any more has ended")
	}
}

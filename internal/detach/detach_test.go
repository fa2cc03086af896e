package detach_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock/internal/detach"
)

func TestCallReturnsTheResult(t *testing.T) {
	for name, ctx := range map[string]context.Context{"can end": t.Context(), "cannot end": context.Background()} {
		if got, err := detach.Call(ctx, detach.Go, func() int { return 7 }); got != 7 || err != nil {
			t.Errorf("%s: Call = %d, %v; want 7, nil", name, got, err)
		}
	}
}

// TestCallerLeaves: the caller returns when its context ends, with its cause, and the call
// goes on to its end.
func TestCallerLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cause := errors.New("cause")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, cause)
		defer cancel()
		begun, ended := time.Now(), false
		_, err := detach.Call(ctx, detach.Go, func() int {
			time.Sleep(time.Hour)
			ended = true
			return 7
		})
		if took := time.Since(begun); took != time.Second || !errors.Is(err, cause) {
			t.Errorf("Call returned %v after %v; want %v after a second", err, took, cause)
		}
		time.Sleep(2 * time.Hour)
		synctest.Wait()
		if !ended {
			t.Error("the call did not go on")
		}
	})
}

func TestNoGoroutineWhereTheContextCannotEnd(t *testing.T) {
	start := func(func()) { t.Error("started a goroutine") }
	if _, err := detach.Call(context.Background(), start, func() int { return 0 }); err != nil {
		t.Error(err)
	}
}

package backoff

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestDelaysDoubleUpToTheLimit(t *testing.T) {
	b := Backoff{Min: 10 * time.Millisecond, Max: 100 * time.Millisecond}
	for _, ms := range []int{10, 20, 40, 80, 100, 100} {
		want := time.Duration(ms) * time.Millisecond
		if got := b.Next(); got < want*3/4 || got > want*5/4+1 {
			t.Errorf("delay %v; want about %v", got, want)
		}
	}
	b.Reset()
	if got := b.Next(); got > 13*time.Millisecond {
		t.Errorf("after Reset the delay is %v", got)
	}
}

func TestJitterIsRandomAndBounded(t *testing.T) {
	seen := map[time.Duration]bool{}
	for range 100 {
		d := Jitter(time.Second)
		if d < 750*time.Millisecond || d > 1250*time.Millisecond+1 {
			t.Fatalf("Jitter(1s) = %v", d)
		}
		seen[d] = true
	}
	if len(seen) < 50 {
		t.Errorf("only %d different delays of 100", len(seen))
	}
	if d := Jitter(0); d != 0 {
		t.Errorf("Jitter(0) = %v", d)
	}
}

// TestSleepEndsWithTheContext: a delay lasts its time, or ends with the cause of the context.
func TestSleepEndsWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cause := errors.New("cause")
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, cause)
		defer cancel()
		begun := time.Now()
		if err := Sleep(ctx, time.Second); err != nil || time.Since(begun) != time.Second {
			t.Errorf("Sleep returned %v after %v; want nil after a second", err, time.Since(begun))
		}
		if err := Sleep(ctx, time.Hour); !errors.Is(err, cause) || time.Since(begun) != time.Minute {
			t.Errorf("Sleep returned %v after %v; want %v after a minute", err, time.Since(begun), cause)
		}
		delays := Backoff{Min: time.Second, Max: time.Second}
		if err := delays.Wait(ctx); !errors.Is(err, cause) {
			t.Errorf("Wait returned %v; want %v", err, cause)
		}
	})
}

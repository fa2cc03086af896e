package backoff

import (
	"testing"
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

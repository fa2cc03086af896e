package sqllock

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// TestPlaced: a place that was written is known to be young for a fifth of its TTL,
// however often somebody asks, and not after it was given up.
func TestPlaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p placed
		if p.has("a") {
			t.Error("who never came has a place")
		}
		p.add("a", 10*time.Second)
		p.add("b", 10*time.Second)
		for range 19 {
			<-time.After(100 * time.Millisecond)
			if !p.has("a") {
				t.Fatal("a young place is not known")
			}
		}
		p.remove("b")
		if p.has("b") {
			t.Error("a place is known that was given up")
		}
		<-time.After(100 * time.Millisecond)
		if p.has("a") {
			t.Error("a place that has to be kept counts as young")
		}
		for i := range 2 * maxNames {
			p.add(fmt.Sprint(i), time.Hour)
		}
		if len(p.until) > maxNames {
			t.Errorf("%d places are remembered, want %d at most", len(p.until), maxNames)
		}
	})
}

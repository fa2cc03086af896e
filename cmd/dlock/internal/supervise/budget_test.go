package supervise

import (
	"math"
	"testing"
	"time"
)

func seconds(n int) time.Duration { return time.Duration(n) * time.Second }

func TestSplitTTLFitsTheGraceIntoTheLease(t *testing.T) {
	for _, c := range []struct{ ttl, grace int }{{30, 5}, {30, 60}, {30, 0}, {3, 5}, {1, 1}, {3600, 5}} {
		p := SplitTTL(seconds(c.ttl), seconds(c.grace))
		if p.Margin > seconds(c.ttl)/3 {
			t.Errorf("ttl %ds, grace %ds: the margin %v is more than a lease can have", c.ttl, c.grace, p.Margin)
		}
		if p.Grace < 0 || p.Grace > seconds(c.grace) || p.Grace+2*p.Poll >= p.Margin {
			t.Errorf("ttl %ds, grace %ds: the grace %v and two polls (%v) must fit into the margin %v", c.ttl, c.grace, p.Grace, p.Poll, p.Margin)
		}
	}
	if p, want := SplitTTL(seconds(30), math.MaxInt64), SplitTTL(seconds(30), seconds(3600)); p != want {
		t.Errorf("the longest grace is split into %+v, an hour into %+v", p, want)
	}
	if p := SplitTTL(seconds(30), seconds(5)); p.Grace != seconds(5) {
		t.Errorf("the default grace is cut to %v", p.Grace)
	}
}

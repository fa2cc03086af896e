package sqllock

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

func owners(all []attemptOf) (owners []string) {
	for _, a := range all {
		owners = append(owners, a.owner)
	}
	return owners
}

// TestPlaceIsDue: a place that was written a quarter of its TTL ago is due, one that lapsed
// or was given up is missing.
func TestPlaceIsDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p placed
		expect := func(owner string, want placeState) {
			t.Helper()
			if got := p.come(owner); got != want {
				t.Errorf("the place of %s is in state %d, want %d", owner, got, want)
			}
		}
		const ttl = 10 * time.Second
		expect("a", placeMissing)
		p.add("x", "a", ttl)
		p.add("x", "b", ttl)
		p.add("x", "c", ttl)
		time.Sleep(ttl/placeDue - 1)
		expect("a", placeYoung)
		time.Sleep(1)
		expect("a", placeOld)
		p.remove("b")
		expect("b", placeMissing)
		time.Sleep(ttl - ttl/placeDue - 1)
		expect("c", placeOld)
		time.Sleep(1)
		expect("c", placeMissing)
	})
}

// TestPlacesAreRenewedTogether: one renewal is for all who have come since theirs was
// written, and for so long as is left since their last attempt. The others are left alone.
func TestPlacesAreRenewedTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p placed
		const ttl = 8 * time.Second
		for _, owner := range []string{"a", "b", "c", "silent"} {
			p.add("x", owner, ttl)
		}
		time.Sleep(time.Second)
		p.come("b")
		time.Sleep(time.Second)
		for _, owner := range []string{"a", "c"} {
			if got := p.come(owner); got != placeOld {
				t.Errorf("the place of %s is in state %d, want %d", owner, got, placeOld)
			}
		}
		if p.begin() != nil {
			t.Fatal("a renewal is under way before there is one")
		}
		if p.come("a") != placeYoung {
			t.Error("an attempt does not leave the renewal to the one under way")
		}
		if p.begin() == nil {
			t.Error("two renewals are under way")
		}
		all := p.collect()
		if got := owners(all); !slices.Equal(got, []string{"a", "b", "c"}) {
			t.Fatalf("the places of %q are renewed", got)
		}
		for _, a := range all {
			if want := map[string]time.Duration{"a": ttl, "b": ttl - time.Second, "c": ttl}[a.owner]; a.left != want {
				t.Errorf("the place of %s is renewed for %v, want %v", a.owner, a.left, want)
			}
		}
		p.settle(all, map[rowKey]bool{{"x", "a"}: true, {"x", "b"}: true})
		p.end()
		if got := owners(p.collect()); len(got) > 0 {
			t.Errorf("the places of %q are renewed again", got)
		}
		if p.come("c") != placeMissing {
			t.Error("a place that was not found is still known")
		}
		// Soon after a renewal only a place that is urgent has another one.
		time.Sleep(ttl/placePause - 1)
		if p.come("b") != placeYoung {
			t.Error("an attempt causes a renewal soon after another one")
		}
		time.Sleep(1)
		if p.come("b") != placeOld {
			t.Error("a place that is due is not renewed")
		}
	})
}

// TestUrgentPlaceIsRenewed: a place that was written half a TTL ago is renewed although
// others were a moment ago.
func TestUrgentPlaceIsRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p placed
		p.add("x", "a", 8*time.Second)
		time.Sleep(4*time.Second - 1)
		p.begin()
		p.end()
		if p.come("a") != placeYoung {
			t.Error("an attempt causes a renewal soon after another one")
		}
		time.Sleep(1)
		if p.come("a") != placeOld {
			t.Error("an urgent place is not renewed")
		}
	})
}

// TestPlacesAreForgotten: what is remembered is bounded, and forgotten places are taken anew.
func TestPlacesAreForgotten(t *testing.T) {
	var p placed
	for i := range 2 * maxNames {
		p.add("x", fmt.Sprint(i), time.Hour)
	}
	if len(p.places) > maxNames {
		t.Errorf("%d places are remembered, want %d at most", len(p.places), maxNames)
	}
}

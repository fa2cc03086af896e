package places

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock/sqllock/internal/statement"
)

func texts(all []Renewal) (texts []string) {
	for _, a := range all {
		texts = append(texts, a.Owner)
	}
	return texts
}

// TestPlaceIsDue: a place that was written a quarter of its TTL ago is due, one that expired
// or was given up is missing.
func TestPlaceIsDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p Recent
		expect := func(text string, want State) {
			t.Helper()
			if got := p.Attempt(text); got != want {
				t.Errorf("place %s is in state %d, want %d", text, got, want)
			}
		}
		const ttl = 10 * time.Second
		expect("a", Missing)
		p.Add("x", "a", ttl, nil)
		p.Add("x", "b", ttl, nil)
		p.Add("x", "c", ttl, nil)
		time.Sleep(ttl/renewAfter - 1)
		expect("a", Young)
		time.Sleep(time.Nanosecond)
		expect("a", Old)
		p.Remove("b")
		expect("b", Missing)
		time.Sleep(ttl - ttl/renewAfter - 1)
		expect("c", Old)
		time.Sleep(time.Nanosecond)
		expect("c", Missing)
	})
}

// TestPlacesAreRenewedTogether: one renewal renews every place whose waiter has tried again
// since the place was written, for what is left of the TTL since that attempt. It renews no other place.
func TestPlacesAreRenewedTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p Recent
		const ttl = 8 * time.Second
		for _, text := range []string{"a", "b", "c", "silent"} {
			p.Add("x", text, ttl, nil)
		}
		time.Sleep(time.Second)
		p.Attempt("b")
		time.Sleep(time.Second)
		for _, text := range []string{"a", "c"} {
			if got := p.Attempt(text); got != Old {
				t.Errorf("place %s is in state %d, want %d", text, got, Old)
			}
		}
		if p.Begin() != nil {
			t.Fatal("a renewal is under way before there is one")
		}
		if p.Attempt("a") != Young {
			t.Error("an attempt does not leave the renewal to the one under way")
		}
		if p.Begin() == nil {
			t.Error("two renewals are under way")
		}
		all := p.Collect()
		if got := texts(all); !slices.Equal(got, []string{"a", "b", "c"}) {
			t.Fatalf("the places of %q are renewed", got)
		}
		for _, a := range all {
			if want := map[string]time.Duration{"a": ttl, "b": ttl - time.Second, "c": ttl}[a.Owner]; a.Remaining != want {
				t.Errorf("place %s is renewed for %v, want %v", a.Owner, a.Remaining, want)
			}
		}
		p.NoteRenewed(all, map[statement.Key]bool{{Name: "x", Owner: "a"}: true, {Name: "x", Owner: "b"}: true})
		p.End()
		if got := texts(p.Collect()); len(got) > 0 {
			t.Errorf("the places of %q are renewed again", got)
		}
		if p.Attempt("c") != Missing {
			t.Error("a place that was not found is still known")
		}
		// Soon after a renewal only a place that must be renewed has another one.
		time.Sleep(ttl/minRenewGap - 1)
		if p.Attempt("b") != Young {
			t.Error("an attempt causes a renewal soon after another one")
		}
		time.Sleep(time.Nanosecond)
		if p.Attempt("b") != Old {
			t.Error("a place that is due is not renewed")
		}
	})
}

// TestUrgentPlaceIsRenewed: a place that was written half a TTL ago is renewed although
// others were a moment ago.
func TestUrgentPlaceIsRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p Recent
		p.Add("x", "a", 8*time.Second, nil)
		time.Sleep(4*time.Second - 1)
		p.Begin()
		p.End()
		if p.Attempt("a") != Young {
			t.Error("an attempt causes a renewal soon after another one")
		}
		time.Sleep(time.Nanosecond)
		if p.Attempt("a") != Old {
			t.Error("a place that must be renewed is not")
		}
	})
}

// TestPlacesAreForgotten: what is remembered is bounded, and forgotten places are taken anew.
func TestPlacesAreForgotten(t *testing.T) {
	var p Recent
	for i := range 2 * maxPlaces {
		p.Add("x", fmt.Sprint(i), time.Hour, nil)
	}
	if len(p.places) > maxPlaces {
		t.Errorf("%d places are remembered, want %d at most", len(p.places), maxPlaces)
	}
}

// TestUnknownPlaceIsFoundOut: a place that may exist is renewed at the next attempt, and taken if it
// does not.
func TestUnknownPlaceIsFoundOut(t *testing.T) {
	for _, exists := range []bool{true, false} {
		var p Recent
		p.Add("x", "a", time.Hour, errors.New("lost"))
		if !p.Has("a") || p.Attempt("a") != Old {
			t.Error("a place that may exist is not renewed")
		}
		all := p.Collect()
		if got := texts(all); !slices.Equal(got, []string{"a"}) {
			t.Fatalf("the places of %q are renewed", got)
		}
		p.NoteRenewed(all, map[statement.Key]bool{{Name: "x", Owner: "a"}: exists})
		if got := p.Attempt("a"); exists != (got == Young) || exists == (got == Missing) {
			t.Errorf("after a renewal that found a place (%v), it is in state %d", exists, got)
		}
	}
}

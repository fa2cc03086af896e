package soak

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/test/harness/history"
)

// reports builds a record by hand. Times are in milliseconds.
type reports struct {
	*record
	holds int
}

func newReports(processes ...int) *reports {
	r := &reports{record: newRecord()}
	for _, p := range processes {
		r.complete[p] = math.MaxInt64
	}
	return r
}

func ms(n int) int64 { return int64(n) * int64(time.Millisecond) }

// hold reports a lease that was asked for at asked and trusted from got to last, and whose
// Unlock returned at end. Without an end the report ends with the acquisition.
func (r *reports) hold(process int, name string, mode driver.Mode, token, asked, got, last, end int) {
	r.holds++
	e := history.Event{Kind: history.Acquired, Worker: process, Name: name, Hold: fmt.Sprint(r.holds), Token: uint64(token), Mode: mode, From: ms(asked), To: ms(got), OK: true}
	r.add(process, e)
	if end > 0 {
		e.Kind, e.From, e.To = history.Ended, ms(last), ms(end)
		r.add(process, e)
	}
}

func (r *reports) checker(t *testing.T) *checker {
	return &checker{record: r.record, file: pictureFile(t.TempDir(), "test", 1), woken: make(map[string][]time.Duration)}
}

func (r *reports) check(t *testing.T) []Violation {
	t.Helper()
	found, err := r.checker(t).check()
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// TestWindows: a long history is checked in parts, and what is open waits.
func TestWindows(t *testing.T) {
	r := newReports(0, 1)
	const turns = 4*fewHolds + 1
	for i := range turns { // the next one is always waiting when the last one ends
		r.hold(i%2, "x", driver.Mode{}, i+1, 10*i-15, 10*i, 10*i+5, 10*i+12)
	}
	r.hold(0, "x", driver.Mode{}, turns+1, 10*turns, 10*turns+5, 0, 0)
	found := r.check(t)
	if len(found) > 0 {
		t.Errorf("in a legal history it found %v", found)
	}
	if r.counts.Checked != turns-1 || r.counts.Windows != 4 || r.unchecked != 2 {
		t.Errorf("%d acquisitions checked in %d windows, %d are left; want %d in 4 and 2", r.counts.Checked, r.counts.Windows, r.unchecked, turns-1)
	}
	r.died(0, ms(10*turns+20))
	if found := r.check(t); len(found) > 0 || r.unchecked != 0 || r.counts.Unknown != 1 {
		t.Errorf("after the death of the holder it found %v, %d are left, %d unknown", found, r.unchecked, r.counts.Unknown)
	}
}

// TestViolationsAreFound: what the models forbid is found, across windows too, and drawn.
func TestViolationsAreFound(t *testing.T) {
	shared, limit := driver.Mode{Shared: true}, driver.Mode{Limit: 2}
	for want, report := range map[string]func(r *reports){
		"one holder at a time": func(r *reports) {
			r.hold(0, "x", driver.Mode{}, 1, 0, 10, 30, 40)
			r.hold(1, "x", driver.Mode{}, 2, 0, 20, 50, 60)
		},
		"tokens rise": func(r *reports) {
			for i := range fewHolds {
				r.hold(0, "x", driver.Mode{}, i+10, 10*i, 10*i+2, 10*i+4, 10*i+6)
			}
			r.hold(1, "x", driver.Mode{}, 9, 0, 10_000, 10_010, 10_020)
		},
		"one writer or readers": func(r *reports) {
			r.hold(0, "x", shared, 1, 0, 10, 30, 40)
			r.hold(1, "x", driver.Mode{}, 2, 0, 20, 50, 60)
		},
		"no more holders than the limit": func(r *reports) {
			for i := range 3 {
				r.hold(i%2, "x", limit, i+1, 0, 10+i, 30, 40)
			}
		},
	} {
		r := newReports(0, 1)
		for i := range 3 * fewHolds { // before, nothing is wrong
			r.hold(0, "y", driver.Mode{}, i+1, 10*i, 10*i+2, 10*i+4, 10*i+6)
		}
		report(r)
		found := r.check(t)
		if len(found) != 1 || found[0].Promise != want {
			t.Errorf("found %v; want %q", found, want)
			continue
		}
		if page, err := os.ReadFile(found[0].Picture); err != nil || filepath.Ext(found[0].Picture) != ".html" || len(page) == 0 {
			t.Errorf("%s: the picture %s: %v", want, found[0].Picture, err)
		}
	}
}

// TestLateWakes: waiters that get a released lock late are found, unless a fault explains it, and
// also if the record is checked while the lock is free.
func TestLateWakes(t *testing.T) {
	for _, test := range []struct {
		late  int
		fault bool
		often bool // check after each hold
		want  int
	}{{late: 5}, {late: 1000, want: 1}, {late: 1000, fault: true}, {late: 5, often: true}, {late: 1000, often: true, want: 1}} {
		r := newReports(0, 1)
		if test.fault {
			r.causes("cut", -1)
			r.faults[0].from = 0
		}
		at, c := 0, r.checker(t)
		for i := range 2 * fewWakes {
			r.hold(i%2, wakeNames[0], driver.Mode{}, i+1, at-5000, at, at+10, at+11)
			r.complete[0] = ms(at + 12)
			at += 11 + test.late
			if last := i == 2*fewWakes-1; test.often || last {
				if found, err := c.check(); len(found) > 0 || err != nil {
					t.Fatalf("found %v, %v; want nothing", found, err)
				}
			}
		}
		if found := c.lateWakes(); len(found) != test.want {
			t.Errorf("%+v: found %v", test, found)
		}
	}
}

package soak

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"sync"

	"github.com/dlock-go/dlock/test/harness/history"
)

// hold is a lease of a process on one name. The process trusted it from acquired.To, when it
// first checked it, to ended.From, when it last did.
type hold struct {
	process         int
	acquired, ended history.Event
	open            bool // ended is not known yet
	orderly         bool // unlocked without an error
}

// trustedUntil is the last time at which the process is known to have trusted the lease.
func (h *hold) trustedUntil() int64 {
	if h.open {
		return math.MaxInt64
	}
	return h.ended.From
}

// nameRecord is what is known of one name and has not been checked yet.
type nameRecord struct {
	holds   []*hold          // in no order
	open    map[string]*hold // by Event.Hold
	checked int64            // the end of the part that was checked
	tokens  history.Tokens   // of that part
	last    *hold            // of that part
}

// record collects what the processes report, and what is done to them.
type record struct {
	mu        sync.Mutex
	names     map[string]*nameRecord
	complete  map[int]int64 // by process: its reports are complete up to then; none for dead ones
	faults    []*fault
	counts    Counts
	unchecked int // holds
}

// Counts is what has happened so far.
type Counts struct {
	Acquired int            `json:"acquired"`
	Checked  int            `json:"checked"` // acquisitions
	Failed   int            `json:"failed"`  // calls of Lock
	Lost     int            `json:"lost"`    // leases that ended before they were unlocked, or whose Unlock failed
	Unknown  int            `json:"unknown"` // leases of processes that were killed
	Windows  int            `json:"windows"` // parts of histories that were checked on their own
	Faults   map[string]int `json:"faults"`  // by name
	Modes    map[string]int `json:"acquisitions_by_kind"`
}

func newRecord() *record {
	return &record{names: make(map[string]*nameRecord), complete: make(map[int]int64),
		counts: Counts{Faults: make(map[string]int), Modes: make(map[string]int)}}
}

// started says that a process is about to start.
func (r *record) started(process int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.complete[process] = history.Now()
}

// add records an event of a process.
func (r *record) add(process int, e history.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch e.Kind {
	case marked:
		r.complete[process] = e.To
	case history.Failed:
		r.counts.Failed++
	case history.Acquired:
		n := r.names[e.Name]
		if n == nil {
			n = &nameRecord{open: make(map[string]*hold)}
			r.names[e.Name] = n
		}
		h := &hold{process: process, acquired: e, open: true}
		n.holds, n.open[e.Hold] = append(n.holds, h), h
		r.counts.Acquired++
		r.counts.Modes[kindOf(e)]++
		r.unchecked++
	case history.Ended:
		n := r.names[e.Name]
		h := n.open[e.Hold]
		delete(n.open, e.Hold)
		h.ended, h.open, h.orderly = e, false, e.OK
		if !e.OK {
			r.counts.Lost++
		}
	}
}

// kindOf returns the mode of an acquisition or, if it is exclusive, its kind of name.
func kindOf(e history.Event) string {
	switch {
	case e.Mode.Shared:
		return "shared"
	case e.Mode.Limit > 0:
		return "limited"
	case slices.Contains(named("fair", 1), e.Name), e.Name == wakeNames[1]:
		return "fair"
	case slices.Contains(named("batch", 3), e.Name):
		return "batch"
	}
	return "exclusive"
}

// died says that a process has ended: it may have stopped trusting its leases at any time
// since it last reported them.
func (r *record) died(process int, at int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.complete, process)
	for _, n := range r.names {
		for id, h := range n.open {
			if h.process == process {
				h.ended = h.acquired
				h.ended.Kind, h.ended.From, h.ended.To, h.open = history.Ended, h.acquired.To, at, false
				delete(n.open, id)
				r.counts.Unknown++
			}
		}
	}
}

// window is a part of the history of a name that can be checked on its own.
type window struct {
	name   string
	holds  []*hold
	before *hold // the last hold of the part before, if there is one
	from   int64
	to     int64
	tokens history.Tokens // of the parts before
}

// events returns the acquisition and the end of each hold. An acquisition happened after those
// that returned before it, and within the window: its process is known to trust the lease when
// the call returns, so a lease that excludes it was granted earlier and has ended, or is granted
// later. For the same reason a hold that ends beyond the window may be taken to end within it:
// its process is not known to trust it any longer.
func (w *window) events() (pairs [][]history.Event) {
	before := w.from
	for _, h := range w.holds {
		a, e := h.acquired, h.ended
		a.From, e.To = max(a.From, before), max(e.From, min(e.To, w.to))
		pairs = append(pairs, []history.Event{a, e})
		before = a.To
	}
	return pairs
}

// windows takes the parts that are complete out of the record. A part ends at a time at which
// no process trusts a lease of the name.
func (r *record) windows() (found []*window) {
	r.mu.Lock()
	defer r.mu.Unlock()
	complete := history.Now()
	for _, at := range r.complete {
		complete = min(complete, at)
	}
	for name, n := range r.names {
		for _, w := range n.cut(name, complete) {
			found = append(found, w)
			r.unchecked -= len(w.holds)
			r.counts.Checked += len(w.holds)
			r.counts.Windows++
		}
	}
	return found
}

// fewHolds is how many holds a part has at least, unless it is the last one.
const fewHolds = 50

// cut takes the complete parts of a name.
func (n *nameRecord) cut(name string, complete int64) (found []*window) {
	slices.SortFunc(n.holds, func(a, b *hold) int { return cmp.Compare(a.acquired.To, b.acquired.To) })
	start, trusted := 0, int64(0)
	for i, h := range n.holds {
		trusted = max(trusted, h.trustedUntil())
		next, last := complete, i+1 == len(n.holds)
		if !last {
			next = min(complete, n.holds[i+1].acquired.To)
		}
		if h.acquired.To >= complete || trusted >= next || i+1-start < fewHolds && !last {
			continue
		}
		w := &window{name: name, holds: n.holds[start : i+1 : i+1], before: n.last, from: n.checked, to: next, tokens: n.tokens}
		found = append(found, w)
		start, n.checked, n.last = i+1, next, h
		n.tokens = n.tokens.After(slices.Concat(w.events()...))
	}
	n.holds = slices.Clone(n.holds[start:])
	return found
}

// snapshot returns the counts, and how many acquisitions are not checked yet.
func (r *record) snapshot() (c Counts, unchecked int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c = r.counts
	c.Faults, c.Modes = maps.Clone(c.Faults), maps.Clone(c.Modes)
	return c, r.unchecked
}

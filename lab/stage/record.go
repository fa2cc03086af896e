package stage

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Kind is what happened in an [Event].
type Kind string

// The kinds of events.
const (
	Granted  Kind = "granted"  // a process got the lock
	Failed   Kind = "failed"   // a process did not get the lock, or could not release it
	Unlocked Kind = "unlocked" // a process released the lock
	Read     Kind = "read"     // a process read the account
	Wrote    Kind = "wrote"    // a process wrote the account
	Withheld Kind = "withheld" // a process did not write, because it knew that it had lost the lock
	Harm     Kind = "harm"     // the experiment did something
)

// Event is something that happened in an experiment.
type Event struct {
	At      time.Duration `json:"at"` // since the experiment began
	Process string        `json:"process,omitempty"`
	Kind    Kind          `json:"kind"`
	Text    string        `json:"text,omitempty"`
	Token   uint64        `json:"token,omitempty"`
	Refused bool          `json:"refused,omitempty"` // the fence refused the write
	Stale   bool          `json:"stale,omitempty"`   // the write destroyed that of another process
}

// Hold is the time in which a process believed to have the lock. Every moment of it
// is certain: it begins when the call returned, and ends with the last check that
// the process passed.
type Hold struct {
	Process string        `json:"process"`
	From    time.Duration `json:"from"`
	To      time.Duration `json:"to"`
	Token   uint64        `json:"token,omitempty"`
	Text    string        `json:"text,omitempty"` // what the process did

	number int // of the process
}

// Span is a time in which a process was paused, or in which the server said something.
type Span struct {
	Process string        `json:"process,omitempty"`
	From    time.Duration `json:"from"`
	To      time.Duration `json:"to"` // zero if it was never resumed
}

// Stock is a number that falls during an experiment.
type Stock struct {
	Of    string          `json:"of"`
	Begin int             `json:"begin"`
	Falls []time.Duration `json:"falls"` // each by one, in order
}

// Record is all that happened in an experiment.
type Record struct {
	Processes []string      `json:"processes"`
	Events    []Event       `json:"events"`
	Holds     []*Hold       `json:"holds"`
	Pauses    []Span        `json:"pauses,omitempty"`
	Server    []Span        `json:"server,omitempty"` // when the server said that the lock was held; To is the last time
	Stock     *Stock        `json:"stock,omitempty"`
	End       time.Duration `json:"end"`

	mu    sync.Mutex
	began time.Duration
	held  bool // the server's last answer
}

func newRecord() *Record { return &Record{began: Now()} }

// add records an event that happened at a time of [Now].
func (r *Record) add(at time.Duration, e Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e.At = at - r.began
	r.Events = append(r.Events, e)
}

// begin records that a process got the lock.
func (r *Record) begin(at time.Duration, process string, number int, token uint64) {
	r.add(at, Event{Process: process, Kind: Granted, Token: token})
	h := r.hold(process, number)
	r.mu.Lock()
	defer r.mu.Unlock()
	h.From, h.To, h.Token = at-r.began, max(h.To, at-r.began), token
}

// believed records that a process passed a check of its lock. That may be known before
// begin is called.
func (r *Record) believed(at time.Duration, process string, number int) {
	h := r.hold(process, number)
	r.mu.Lock()
	defer r.mu.Unlock()
	h.To = max(h.To, at-r.began)
}

// visit records what a program reports.
func (r *Record) visit(process string, v Visit) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Holds = append(r.Holds, &Hold{Process: process, From: v.From - r.began, To: v.To - r.began, Token: v.Token, Text: v.Text})
	if v.Fell > 0 {
		r.Stock.Falls = append(r.Stock.Falls, v.Fell-r.began)
	}
}

// fell records that the stock fell by one.
func (r *Record) fell(at time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Stock.Falls = append(r.Stock.Falls, at-r.began)
}

func (r *Record) paused(process string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Pauses = append(r.Pauses, Span{Process: process, From: Now() - r.began})
}

// resumed ends the last pause of a process, and returns how long it was.
func (r *Record) resumed(process string) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range slices.Backward(r.Pauses) {
		if p := &r.Pauses[i]; p.Process == process {
			p.To = Now() - r.began
			return p.To - p.From
		}
	}
	return 0
}

// hold returns a hold by the process and its number there.
func (r *Record) hold(process string, number int) *Hold {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, h := range r.Holds {
		if h.Process == process && h.number == number {
			return h
		}
	}
	h := &Hold{Process: process, number: number}
	r.Holds = append(r.Holds, h)
	return h
}

// observed records what the server says now.
func (r *Record) observed(held bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := Now() - r.began
	switch {
	case held && !r.held:
		r.Server = append(r.Server, Span{From: now, To: now})
	case held:
		r.Server[len(r.Server)-1].To = now
	}
	r.held = held
}

func (r *Record) finish() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.End = Now() - r.began
	slices.SortStableFunc(r.Events, func(a, b Event) int { return cmp.Compare(a.At, b.At) })
	if r.Stock != nil {
		slices.Sort(r.Stock.Falls)
	}
}

// Overlaps returns the times in which several processes, or several visits, believed to have the lock, in
// order. A process that is paused does nothing, so its pauses do not count.
func (r *Record) Overlaps() (all []Span) {
	inside := make(map[string]int) // holds, by process or visit
	var since time.Duration
	r.sweep(func(at time.Duration, holder string, step int) {
		before := len(inside)
		if inside[holder] += step; inside[holder] == 0 {
			delete(inside, holder)
		}
		switch last := len(all) - 1; {
		case before < 2 && len(inside) >= 2:
			since = at
		case before >= 2 && len(inside) < 2 && at > since:
			if last >= 0 && all[last].To == since {
				all[last].To = at
			} else {
				all = append(all, Span{From: since, To: at})
			}
		}
	})
	return all
}

// AtOnce returns how many holds there were at the same time, also by the same process.
func (r *Record) AtOnce() (most int) {
	n := 0
	r.sweep(func(_ time.Duration, _ string, step int) {
		n += step
		most = max(most, n)
	})
	return most
}

// sweep calls changed for every begin (1) and end (-1) of a hold or of a part of it, in order. A hold
// that begins in the instant in which another ends comes after it.
func (r *Record) sweep(changed func(at time.Duration, holder string, step int)) {
	type change struct {
		at     time.Duration
		holder string
		step   int
	}
	var changes []change
	for i, h := range r.Holds {
		holder := h.Process
		if h.Text != "" { // a program has several threads
			holder += fmt.Sprintf(" visit %d", i)
		}
		for _, part := range r.awake(h) {
			if part.From < part.To {
				changes = append(changes, change{part.From, holder, 1}, change{part.To, holder, -1})
			}
		}
	}
	slices.SortStableFunc(changes, func(a, b change) int { return cmp.Or(cmp.Compare(a.at, b.at), a.step-b.step) })
	for _, c := range changes {
		changed(c.at, c.holder, c.step)
	}
}

// awake returns the parts of a hold in which its process was not paused.
func (r *Record) awake(h *Hold) (parts []Span) {
	from := h.From
	for _, p := range r.Pauses {
		if p.Process == h.Process && p.From >= from && p.From < h.To {
			parts = append(parts, Span{h.Process, from, p.From})
			if from = p.To; from == 0 {
				return parts
			}
		}
	}
	return append(parts, Span{h.Process, from, h.To})
}

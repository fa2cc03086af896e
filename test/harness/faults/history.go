package faults

import (
	"fmt"
	"slices"
	"sync"
	"time"
)

// event is an action of a worker at some instant between From and To, in the time
// of monotonic.
type event struct {
	Kind   string `json:"kind"` // one of the constants below
	Worker int    `json:"worker"`
	Name   string `json:"name"`
	Token  uint64 `json:"token"`
	// Hold identifies one acquisition, even where tokens repeat.
	Hold string `json:"hold"`
	OK   bool   `json:"ok,omitempty"` // the resource accepted the write
	From int64  `json:"from"`
	To   int64  `json:"to"`
}

// The kinds of events.
const (
	acquired   = "acquired"   // Lock returned a lease
	ended      = "ended"      // the worker stopped trusting its lease: unlocked, lost, or dead
	wrote      = "wrote"      // the worker wrote to the resource that the lock protects
	writeAsked = "writeAsked" // the worker asks to write; the answer turns the event into wrote
	failed     = "failed"     // Lock returned an error
	deleted    = "deleted"    // the test deleted the lock in the store
)

func (d event) String() string {
	return fmt.Sprintf("worker %d %s %s with token %d (%s) between %.6f and %.6f",
		d.Worker, d.Kind, d.Name, d.Token, d.Hold, time.Duration(d.From).Seconds(), time.Duration(d.To).Seconds())
}

// history records the events of all workers.
type history struct {
	mu     sync.Mutex
	events []event
	open   map[int]event // by worker: the acquisition that has not ended
}

func newHistory() *history { return &history{open: make(map[int]event)} }

func (h *history) add(d event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events = append(h.events, d)
	switch d.Kind {
	case acquired:
		h.open[d.Worker] = d
	case ended:
		delete(h.open, d.Worker)
	}
}

// died records the end of the hold of a dead worker. The worker may have lost its
// lock at any time since the acquisition.
func (h *history) died(worker int) {
	h.mu.Lock()
	held, ok := h.open[worker]
	h.mu.Unlock()
	if ok {
		held.Kind, held.To = ended, monotonic()
		h.add(held)
	}
}

func (h *history) count(kind string) (n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, d := range h.events {
		if d.Kind == kind {
			n++
		}
	}
	return n
}

// excuseDeletions returns the events with an allowance for deleted locks. A
// holder cannot know of a deletion at once. If it stopped trusting its lease
// within the allowance after the deletion, its hold counts as ended at the
// deletion.
func (h *history) excuseDeletions(allowance time.Duration) []event {
	h.mu.Lock()
	defer h.mu.Unlock()
	events := slices.Clone(h.events)
	began := make(map[string]int64)
	for _, d := range events {
		if d.Kind == acquired {
			began[d.Hold] = d.From
		}
	}
	for _, f := range h.events {
		if f.Kind != deleted {
			continue
		}
		for i := range events {
			d := &events[i]
			if d.Kind == ended && d.Name == f.Name && began[d.Hold] <= f.To && d.To >= f.From && d.To <= f.To+int64(allowance) {
				d.From = min(d.From, max(f.From, began[d.Hold]))
			}
		}
	}
	return events
}

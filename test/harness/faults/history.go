package faults

import (
	"fmt"
	"slices"
	"sync"
	"time"
)

// deed is something that a worker did, at some moment between From and To: see
// monotonic.
type deed struct {
	Kind   string `json:"kind"` // one of the constants below
	Worker int    `json:"worker"`
	Name   string `json:"name"`
	Token  uint64 `json:"token"`
	// Hold identifies one acquisition also where tokens do not.
	Hold string `json:"hold"`
	OK   bool   `json:"ok,omitempty"` // the resource took a write
	From int64  `json:"from"`
	To   int64  `json:"to"`
}

// The kinds of deeds.
const (
	acquired = "acquired" // Lock returned a lease
	ended    = "ended"    // the worker does not believe in it any more: unlocked, lost, or dead
	wrote    = "wrote"    // to the resource that the lock protects
	asks     = "asks"     // for a write; the answer makes it one
	failed   = "failed"   // Lock returned an error
	forgot   = "forgot"   // the store was made to forget the lock
)

func (d deed) String() string {
	return fmt.Sprintf("worker %d %s %s with token %d (%s) between %.6f and %.6f",
		d.Worker, d.Kind, d.Name, d.Token, d.Hold, time.Duration(d.From).Seconds(), time.Duration(d.To).Seconds())
}

// history is what all workers did.
type history struct {
	mu    sync.Mutex
	deeds []deed
	open  map[int]deed // by worker: what it has acquired and not ended
}

func newHistory() *history { return &history{open: make(map[int]deed)} }

func (h *history) add(d deed) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.deeds = append(h.deeds, d)
	switch d.Kind {
	case acquired:
		h.open[d.Worker] = d
	case ended:
		delete(h.open, d.Worker)
	}
}

// died ends what a worker believed that is dead by now. It may have lost its lock
// at any time before.
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
	for _, d := range h.deeds {
		if d.Kind == kind {
			n++
		}
	}
	return n
}

// excused are the deeds, where whoever had a lock that the store was made to
// forget, and believed in it no longer than that after, may have stopped when
// it was forgotten: no holder can know earlier.
func (h *history) excused(allowance time.Duration) []deed {
	h.mu.Lock()
	defer h.mu.Unlock()
	deeds := slices.Clone(h.deeds)
	began := make(map[string]int64)
	for _, d := range deeds {
		if d.Kind == acquired {
			began[d.Hold] = d.From
		}
	}
	for _, f := range h.deeds {
		if f.Kind != forgot {
			continue
		}
		for i := range deeds {
			d := &deeds[i]
			if d.Kind == ended && d.Name == f.Name && began[d.Hold] <= f.To && d.To >= f.From && d.To <= f.To+int64(allowance) {
				d.From = min(d.From, max(f.From, began[d.Hold]))
			}
		}
	}
	return deeds
}

package faults

import (
	"slices"
	"sync"
	"time"

	"github.com/dlock-go/dlock/test/harness/history"
)

// recorder records the events of all workers.
type recorder struct {
	mu     sync.Mutex
	events []history.Event
	open   map[int]history.Event // by worker: the acquisition that has not ended
}

func newRecorder() *recorder { return &recorder{open: make(map[int]history.Event)} }

func (h *recorder) add(d history.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events = append(h.events, d)
	switch d.Kind {
	case history.Acquired:
		h.open[d.Worker] = d
	case history.Ended:
		delete(h.open, d.Worker)
	}
}

// died records the end of the hold of a dead worker. The worker may have lost its
// lock at any time since the acquisition.
func (h *recorder) died(worker int) {
	h.mu.Lock()
	held, ok := h.open[worker]
	h.mu.Unlock()
	if ok {
		held.Kind, held.To = history.Ended, history.Now()
		h.add(held)
	}
}

func (h *recorder) count(kind string) (n int) {
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
// holder cannot know of a deletion at once. If its last check that found the lease
// alive was within the allowance after the deletion, its hold counts as ended at
// the deletion.
func (h *recorder) excuseDeletions(allowance time.Duration) []history.Event {
	h.mu.Lock()
	defer h.mu.Unlock()
	events := slices.Clone(h.events)
	began := make(map[string]int64)
	for _, d := range events {
		if d.Kind == history.Acquired {
			began[d.Hold] = d.From
		}
	}
	for _, f := range h.events {
		if f.Kind != history.Deleted {
			continue
		}
		for i := range events {
			d := &events[i]
			if d.Kind == history.Ended && d.Name == f.Name && began[d.Hold] <= f.To && d.To >= f.From && d.From <= f.To+int64(allowance) {
				d.From = min(d.From, max(f.From, began[d.Hold]))
			}
		}
	}
	return events
}

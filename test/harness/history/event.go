// Package history holds what the processes of a test did, and compares it with what a lock
// promises. Every event has an interval of time in which it happened. A history is legal if
// each event can be assigned an instant in its interval, so that all of them follow the rules
// of a [Model].
package history

import (
	"fmt"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// Event is an action of a worker at some instant between From and To, in the time
// of Now.
type Event struct {
	Kind   string `json:"kind"` // one of the constants below
	Worker int    `json:"worker"`
	Name   string `json:"name"`
	Token  uint64 `json:"token"`
	// Hold identifies one acquisition, even where tokens repeat.
	Hold string      `json:"hold"`
	Mode driver.Mode `json:"mode,omitzero"`
	OK   bool        `json:"ok,omitempty"` // the resource accepted the write
	From int64       `json:"from"`
	To   int64       `json:"to"`
}

// The kinds of events.
const (
	Acquired   = "acquired"   // Lock returned a lease
	Ended      = "ended"      // the worker stopped trusting its lease: unlocked, lost, or dead
	Wrote      = "wrote"      // the worker wrote to the resource that the lock protects
	WriteAsked = "writeAsked" // the worker asks to write; the answer turns the event into Wrote
	Failed     = "failed"     // Lock returned an error
	Deleted    = "deleted"    // the test deleted the lock in the store
)

func (d Event) String() string {
	return fmt.Sprintf("worker %d %s %s (%v) with token %d (%s) between %.6f and %.6f",
		d.Worker, d.Kind, d.Name, d.Mode, d.Token, d.Hold, time.Duration(d.From).Seconds(), time.Duration(d.To).Seconds())
}

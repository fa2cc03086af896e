package dlock

import "time"

// Hooks are functions that are called when something happens to a lock. All of
// them are optional. They are called from the goroutine in which it happens,
// some of them from the one that renews all leases: a hook must return at once
// and must not call the client.
type Hooks struct {
	// Acquired: a lock was acquired. Event.Waited says how long that took.
	Acquired func(Event)
	// Waited: a lock was found held, and the waiting ended, with the lock or
	// with Event.Err. Event.Waited says after how long.
	Waited func(Event)
	// Renewed: a renewal ended; Event.Err is nil, or why its outcome is
	// unknown, in which case it is tried again.
	Renewed func(Event)
	// Lost: the lease is over without having been unlocked. Event.Err says why.
	Lost func(Event)
	// Released: a lock was unlocked. Event.Err is what Unlock returns.
	Released func(Event)
}

// Event is what a hook is told.
type Event struct {
	Name   string
	Token  uint64 // zero if there is none
	Waited time.Duration
	Err    error
}

func call(hook func(Event), event Event) {
	if hook != nil {
		hook(event)
	}
}

package dlock

import "time"

// Hooks are functions that the client calls when something happens to a lock. All of
// them are optional. The client calls a hook in the goroutine in which it happens, for
// some hooks one that renews many leases. So a hook must return at once and must not
// call the client.
type Hooks struct {
	// Acquired: a lock was acquired. Event.Waited says how long the caller waited.
	Acquired func(Event)
	// Waited: a caller waited for another holder or another caller, and its waiting has
	// ended, with the lock or with Event.Err. Event.Waited says how long the caller waited.
	Waited func(Event)
	// Renewed: a renewal has ended. Event.Err is nil, or why its outcome is unknown.
	// In that case the client tries again.
	Renewed func(Event)
	// Lost: the lock of the lease was lost. Event.Err says why.
	Lost func(Event)
	// Released: Unlock or Close ended a lease whose loss was not known before. Event.Err says why
	// the release may have failed. If it wraps ErrLost, the store no longer had the lock; Lost is
	// not called then.
	Released func(Event)
}

// Event is the argument of a hook.
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

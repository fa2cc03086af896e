package dlock

import (
	"context"

	"github.com/dlock-go/dlock/internal/ending"
	"github.com/dlock-go/dlock/internal/once"
)

// tenure is what one caller has of a grant: a token, a context, and entries, which are leases. It is
// attached to the grant until its last lease is unlocked. Then delivered to the caller, unless the grant
// has ended before.
type tenure struct {
	grant     *grant
	token     uint64
	callerCtx context.Context // whose values its context has
	outer     *tenure         // the enclosing one: in a LockAll the previous name's, otherwise that of callerCtx; may be nil
	first     Lease           // what Lock returns; the others re-entered

	// The grant's mu guards these.
	entries    int32 // leases that are not unlocked yet
	stage      stage
	unreported *report         // of its end, which came before the hook Acquired had returned
	ctx        context.Context // nil until it is asked for
	ending     *ending.Ending  // of ctx
	next, prev *tenure         // of the grant
}

// Lease is a lock that is held. It is safe for concurrent use. Every successful Lock
// returns its own Lease, also when it re-enters.
type Lease struct {
	tenure  *tenure
	reentry *reentry // nil for the first lease of a tenure
	unlock  once.Once
	result  error // of unlock
}

// stage is how far a tenure has come.
type stage int8

const (
	attached  stage = iota
	delivered       // it is the caller's
	acquired        // the hook Acquired has returned, if there is one
	unlocked        // its last lease, before the grant had ended
)

// report is the last hook of a tenure.
type report struct {
	hook  func(Event)
	event Event
}

// endCause returns why the tenure has ended, or nil. It ends with its grant.
func (t *tenure) endCause() error {
	t.grant.mu.Lock()
	defer t.grant.mu.Unlock()
	return t.endCauseLocked()
}

func (t *tenure) endCauseLocked() error {
	if t.stage == unlocked {
		return ErrReleased
	}
	return t.grant.cause
}

// noteAcquired records that the hook Acquired has returned, and calls the hook of an end that came before.
func (t *tenure) noteAcquired() {
	t.grant.mu.Lock()
	t.stage = max(t.stage, acquired)
	last := t.unreported
	t.unreported = nil
	t.grant.mu.Unlock()
	if last != nil {
		notify(last.hook, last.event)
	}
}

// reportEnd calls the last hook of a delivered tenure, after Acquired.
func (t *tenure) reportEnd(hook func(Event), err error) {
	event := Event{Name: t.grant.name(), Token: t.token, Err: err}
	t.grant.mu.Lock()
	early := t.stage < acquired
	if early {
		t.unreported = &report{hook, event}
	}
	t.grant.mu.Unlock()
	if !early {
		notify(hook, event)
	}
}

// endContext ends the context of a tenure that has ended.
func (t *tenure) endContext(cause error) {
	t.grant.mu.Lock()
	e := t.ending
	t.grant.mu.Unlock()
	if e != nil {
		e.End(cause)
	}
}

func (t *tenure) wasAcquired() bool {
	t.grant.mu.Lock()
	defer t.grant.mu.Unlock()
	return t.stage >= acquired
}

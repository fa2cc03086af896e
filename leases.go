package dlock

import (
	"context"
	"errors"
	"sync"
	"time"
)

// Leases are the leases of one [Client.LockAll]. They are safe for concurrent use.
type Leases struct {
	leases    []*Lease        // in the order of their names
	innermost *hold           // of those that were not re-entered; nil if all were
	caller    context.Context // that LockAll was given

	once sync.Once
	ctx  *leasesContext
}

// Names returns the names that are held, sorted.
func (l *Leases) Names() []string {
	names := make([]string, len(l.leases))
	for i, lease := range l.leases {
		names[i] = lease.Name()
	}
	return names
}

// Token returns the fencing token of name, or zero if it is not among the names.
func (l *Leases) Token(name string) uint64 {
	for _, lease := range l.leases {
		if lease.Name() == name {
			return lease.Token()
		}
	}
	return 0
}

// Remaining returns the time after which the context is done if no renewal succeeds any
// more, as [Lease.Remaining] does for one lock: that of the lock which ends first.
func (l *Leases) Remaining() time.Duration {
	least := l.leases[0].Remaining()
	for _, lease := range l.leases[1:] {
		least = min(least, lease.Remaining())
	}
	return least
}

// Unlock gives all locks back, as [Lease.Unlock] does each.
func (l *Leases) Unlock(ctx context.Context) error {
	errs := make([]error, len(l.leases))
	var wg sync.WaitGroup
	for i, lease := range l.leases {
		wg.Go(func() { errs[i] = lease.Unlock(ctx) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

func (l *Leases) undo() error { return l.Unlock(context.Background()) }

// Context returns a context that is done as soon as any of the locks is not
// ours, as [Lease.Context] is for one. Locking any of the names with it re-enters.
func (l *Leases) Context() context.Context {
	l.once.Do(func() {
		inner, cancel := context.WithCancelCause(l.base())
		l.ctx = &leasesContext{Context: inner, cancel: cancel, leases: l.leases}
		var stops []func() bool
		for _, lease := range l.leases {
			held := lease.Context()
			stops = append(stops, context.AfterFunc(held, func() { cancel(context.Cause(held)) }))
		}
		context.AfterFunc(inner, func() { // a lease around this set may go on for long
			for _, stop := range stops {
				stop()
			}
		})
	})
	return l.ctx
}

// base is the context in which all names are found.
func (l *Leases) base() context.Context {
	if l.innermost == nil {
		return context.WithoutCancel(l.caller)
	}
	return l.innermost.context()
}

// leasesContext asks every lease before it answers.
type leasesContext struct {
	context.Context
	cancel context.CancelCauseFunc
	leases []*Lease
}

func (c *leasesContext) Err() error {
	if c.Context.Err() == nil {
		for _, lease := range c.leases {
			if held := lease.Context(); held.Err() != nil {
				c.cancel(context.Cause(held))
			}
		}
	}
	return c.Context.Err()
}

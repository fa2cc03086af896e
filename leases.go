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
	innermost *hold           // of the holds that LockAll acquired; nil if it re-entered all
	callerCtx context.Context // of LockAll

	once sync.Once
	ctx  *checkedContext
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

// Remaining returns the time until the context is done if no further renewal
// succeeds: the shortest [Lease.Remaining].
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

// Context returns a context that is done as soon as the context of any lease is, see
// [Lease.Context]. Locking any of the names with it re-enters.
func (l *Leases) Context() context.Context {
	l.once.Do(func() {
		base := context.WithoutCancel(l.callerCtx)
		if l.innermost != nil {
			base = l.innermost.context()
		}
		inner, cancel := context.WithCancelCause(base)
		l.ctx = &checkedContext{Context: inner, cancel: cancel}
		var stops []func() bool
		for _, lease := range l.leases {
			held := lease.Context()
			l.ctx.held = append(l.ctx.held, held)
			stops = append(stops, context.AfterFunc(held, func() { cancel(context.Cause(held)) }))
		}
		context.AfterFunc(inner, func() { // an outer lease may go on for long
			for _, stop := range stops {
				stop()
			}
		})
	})
	return l.ctx
}

package demo

import (
	"context"
	"sync"

	"github.com/dlock-go/dlock"
)

// Guard is how a shop keeps others out between reading the stock and writing it.
type Guard string

// The guards, in the order of the runs.
const (
	None   Guard = "none"   // no guard
	Local  Guard = "local"  // a mutex, which excludes the other requests of the same process
	Dlock  Guard = "dlock"  // a lock that all processes share
	Fenced Guard = "fenced" // the same lock, and a row that checks its token
)

// Guards are all guards.
var Guards = []Guard{None, Local, Dlock, Fenced}

// Shared reports whether the guard needs a store of locks.
func (g Guard) Shared() bool { return g == Dlock || g == Fenced }

// OversellLock is the lock of the product. It is always the same, so that the demo leaves one
// name at most in a store that keeps names for their tokens.
const OversellLock = "dlock-demo/oversell/product/1"

// entry is the time of a request inside the guard.
type entry struct {
	held  context.Context // ends when the lock is lost
	row   row
	token uint64 // of the lock; 0 if there is none
	leave func()
}

// rowFor returns the row that a holder uses under a guard.
func (s *Stock) rowFor(guard Guard, token uint64) row {
	if guard == Fenced {
		return &fencedRow{s, token}
	}
	return s
}

// newEnter returns the function that lets the requests of one process in.
func newEnter(guard Guard, stock *Stock, client *dlock.Client) func(ctx context.Context) (*entry, error) {
	var mutex sync.Mutex
	switch guard {
	case None:
		return func(ctx context.Context) (*entry, error) {
			return &entry{held: ctx, row: stock, leave: func() {}}, nil
		}
	case Local:
		return func(ctx context.Context) (*entry, error) {
			mutex.Lock()
			return &entry{held: ctx, row: stock, leave: mutex.Unlock}, nil
		}
	}
	return func(ctx context.Context) (*entry, error) {
		lease, err := client.Lock(ctx, OversellLock)
		if err != nil {
			return nil, err
		}
		leave := func() { _ = lease.Unlock(ctx) } // a lock that cannot be released expires
		return &entry{lease.Context(), stock.rowFor(guard, lease.Token()), lease.Token(), leave}, nil
	}
}

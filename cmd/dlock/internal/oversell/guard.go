package oversell

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/dlock-go/dlock"
)

// Guard is how a shop keeps others out between reading the stock and writing it.
type Guard string

// The guards, in the order of the runs.
const (
	None   Guard = "none"   // it does not
	Local  Guard = "local"  // a mutex: the other requests of the same process
	Dlock  Guard = "dlock"  // a lock that all processes share
	Fenced Guard = "fenced" // the same lock, and a row that checks its token
)

// Guards are all of them.
var Guards = []Guard{None, Local, Dlock, Fenced}

// Shared says whether the guard needs a store of locks.
func (g Guard) Shared() bool { return g == Dlock || g == Fenced }

// LockName is the lock of the product. It is always the same, so that the demo
// leaves no more than one name in a store that keeps names for their tokens.
const LockName = "dlock-demo/oversell/product/1"

// turn is a request's time inside the guard.
type turn struct {
	held  context.Context // ends when the guard is lost
	row   row             // as this turn reads and writes it
	token uint64          // of the lock; 0 if there is none
	leave func()
}

// doorman lets requests in, by the rules of a guard.
type doorman func(ctx context.Context) (*turn, error)

// newDoorman returns the doorman of one process. The client is only needed for
// guards that are shared.
func newDoorman(guard Guard, stock *Stock, client *dlock.Client) (doorman, error) {
	switch {
	case !slices.Contains(Guards, guard):
		return nil, fmt.Errorf("there is no guard %q", guard)
	case guard.Shared() && client == nil:
		return nil, fmt.Errorf("the guard %q needs a store", guard)
	}
	var mutex sync.Mutex
	switch guard {
	case None:
		return func(ctx context.Context) (*turn, error) {
			return &turn{held: ctx, row: stock, leave: func() {}}, nil
		}, nil
	case Local:
		return func(ctx context.Context) (*turn, error) {
			mutex.Lock()
			return &turn{held: ctx, row: stock, leave: mutex.Unlock}, nil
		}, nil
	default:
		return func(ctx context.Context) (*turn, error) {
			lease, err := client.Lock(ctx, LockName)
			if err != nil {
				return nil, err
			}
			t := &turn{held: lease.Context(), row: stock, token: lease.Token()}
			// A lock that cannot be given back expires. What was sold stays sold.
			t.leave = func() { _ = lease.Unlock(ctx) }
			if guard == Fenced {
				t.row = &fencedRow{stock, lease.Token()}
			}
			return t, nil
		}, nil
	}
}

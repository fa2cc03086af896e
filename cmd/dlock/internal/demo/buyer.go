package demo

import (
	"context"
	"errors"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/cmd/dlock/internal/child"
	"github.com/dlock-go/dlock/fence"
)

// PauseLock is the lock of the product in the demo with a pause.
const PauseLock = "dlock-demo/pause/product/1"

// pauseStock is the stock of that demo.
const pauseStock = 1

// buyerEntry is what a buyer knows before it writes. Times are Unix nanoseconds.
type buyerEntry struct {
	Locked int64
	Token  uint64
	Stock  int
}

// buyerExit is what a buyer knows at the end.
type buyerExit struct {
	Wrote int64
	Sold  bool  // false: the row has refused the write
	Left  int64 // when the lock was released, or found lost
}

// buyerRole is the argv[0] of a process that buys.
const buyerRole = "dlock-demo-buyer"

// expirySlack is how much longer than its TTL a lock of a session or a busy machine may last.
const expirySlack = 30 * time.Second

// runBuyer is the program of a process that buys one, in two steps that the parent starts. The
// first one acquires the lock, reads the stock, thinks, and checks that the lock is still held,
// as every program should just before it writes. The second one writes without another check
// and not with the context of the lease: a pause can always follow the last check.
func runBuyer(parent *child.Parent) error {
	s, closeAll, err := openShop(parent)
	if err != nil {
		return err
	}
	defer closeAll()
	if err := parent.AwaitStep(true); err != nil {
		return err
	}
	ttl := fitTTL(s.TTL, s.client.Traits())
	lease, err := s.client.Lock(parent.Context, PauseLock, dlock.WithTTL(ttl), dlock.WithWait(2*ttl+expirySlack))
	if errors.Is(err, dlock.ErrHeld) {
		return errors.New("this store keeps the lock of a stopped process for as long as its connection lives: use another one for this demo")
	}
	if err != nil {
		return err
	}
	row := s.stock.rowFor(s.Guard, lease.Token())
	entry := buyerEntry{Locked: time.Now().UnixNano(), Token: lease.Token()}
	if entry.Stock, err = row.read(lease.Context()); err != nil {
		return err
	}
	select {
	case <-time.After(ttl / 5):
	case <-lease.Context().Done():
	}
	if lease.Context().Err() != nil {
		return context.Cause(lease.Context())
	}
	if err := parent.AwaitStep(entry); err != nil {
		return err
	}

	err = row.take(parent.Context)
	if err != nil && !errors.Is(err, fence.ErrStale) {
		return err
	}
	exit := buyerExit{Wrote: time.Now().UnixNano(), Sold: err == nil}
	_ = lease.Unlock(parent.Context) // the lock may be lost, as the demo intends
	exit.Left = time.Now().UnixNano()
	return parent.Send(exit)
}

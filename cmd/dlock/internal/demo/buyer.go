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

// Buyer buys one, under a lock that may expire meanwhile.
type Buyer struct {
	Guard  Guard
	Stock  *Stock
	Client *dlock.Client
	TTL    time.Duration
	Wait   time.Duration // for the lock, at most
	Think  time.Duration // from reading to writing

	lease *dlock.Lease
	row   row
}

// Entry is what a buyer knows before it writes. Times are Unix nanoseconds.
type Entry struct {
	Locked int64
	Token  uint64
	Stock  int
}

// Exit is what a buyer knows at the end.
type Exit struct {
	Wrote int64
	Sold  bool  // false: the row has refused the write
	Left  int64 // when the lock was released, or found lost
}

// Enter acquires the lock, reads the stock, thinks, and checks that the lock is still held,
// as every program should just before it writes.
func (b *Buyer) Enter(ctx context.Context) (*Entry, error) {
	lease, err := b.Client.Lock(ctx, PauseLock, dlock.WithTTL(b.TTL), dlock.WithWait(b.Wait))
	if err != nil {
		return nil, err
	}
	b.lease, b.row = lease, b.Stock.rowFor(b.Guard, lease.Token())
	entry := &Entry{Locked: time.Now().UnixNano(), Token: lease.Token()}
	if entry.Stock, err = b.row.read(lease.Context()); err != nil {
		return nil, err
	}
	select {
	case <-time.After(b.Think):
	case <-lease.Context().Done():
	}
	return entry, context.Cause(lease.Context())
}

// Buy writes without another check of the lease: a pause can always follow the last check.
// For the same reason ctx is not the context of the lease.
func (b *Buyer) Buy(ctx context.Context) (*Exit, error) {
	err := b.row.take(ctx)
	if err != nil && !errors.Is(err, fence.ErrStale) {
		return nil, err
	}
	exit := &Exit{Wrote: time.Now().UnixNano(), Sold: err == nil}
	_ = b.lease.Unlock(ctx) // the lock may be lost, as the demo intends
	exit.Left = time.Now().UnixNano()
	return exit, nil
}

// buyerRole is the argv[0] of a process that buys.
const buyerRole = "dlock-demo-buyer"

// expirySlack is how much longer than its TTL a lock may take to expire: stores that watch
// sessions need some seconds more, and a machine may be busy.
const expirySlack = 30 * time.Second

// runBuyer is the program of a process that buys. It does each step when the parent wants it.
func runBuyer(parent *child.Parent) error {
	var task shopTask
	if err := parent.Receive(&task); err != nil {
		return err
	}
	stock, client, closeAll, err := task.open(parent.Context, 2)
	if err != nil {
		return err
	}
	defer closeAll()
	traits := client.Traits()
	ttl := min(max(task.TTL, traits.MinTTL), traits.LongestTTL())
	buyer := &Buyer{Guard: task.Guard, Stock: stock, Client: client, TTL: ttl, Wait: 2*ttl + expirySlack, Think: ttl / 5}
	if err := parent.AwaitStep(true); err != nil {
		return err
	}
	entry, err := buyer.Enter(parent.Context)
	if errors.Is(err, dlock.ErrHeld) {
		return errors.New("this store keeps the lock of a stopped process for as long as its connection lives: use another one for this demo")
	}
	if err != nil {
		return err
	}
	if err := parent.AwaitStep(entry); err != nil {
		return err
	}
	exit, err := buyer.Buy(parent.Context)
	if err != nil {
		return err
	}
	return parent.Send(exit)
}

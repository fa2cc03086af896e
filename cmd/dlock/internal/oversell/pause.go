package oversell

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/cmd/dlock/internal/child"
	"github.com/dlock-go/dlock/fence"
)

// PauseLockName is the lock of the product in the scenario with a pause.
const PauseLockName = "dlock-demo/pause/product/1"

// PauseGuards are the guards of that scenario: the lock alone, and with the fence.
var PauseGuards = []Guard{Dlock, Fenced}

// PauseStock is the stock of that scenario.
const PauseStock = 1

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
	lease, err := b.Client.Lock(ctx, PauseLockName, dlock.WithTTL(b.TTL), dlock.WithWait(b.Wait))
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

// Pause is the scenario. The first process acquires the lock, reads that one is in stock and
// is stopped before it writes, for longer than its lock lasts. The second process gets the
// lock when it has expired and sells the one. Then the first process continues.
type Pause struct {
	Stock *Stock

	// Start starts the process of a buyer. It sends true when it is ready, its Entry after
	// the first step, and its Exit after the second.
	Start func(ctx context.Context, guard Guard) (*child.Process, error)
}

// PauseResult is the outcome of one run.
type PauseResult struct {
	Guard              Guard
	Entries            [2]Entry
	Exits              [2]Exit
	Stopped, Continued int64 // when the first process was, in Unix nanoseconds
	FinalStock         int
}

// Sold counts the sales that the buyers believe in.
func (r *PauseResult) Sold() (sold int) {
	for _, exit := range r.Exits {
		if exit.Sold {
			sold++
		}
	}
	return sold
}

// Run fills the stock and lets both processes buy. When it returns, no process runs any more.
func (p *Pause) Run(ctx context.Context, guard Guard) (*PauseResult, error) {
	if err := p.Stock.Restock(ctx, PauseStock); err != nil {
		return nil, err
	}
	buyers, err := child.StartGroup(2, func() (*child.Process, error) { return p.Start(ctx, guard) })
	defer buyers.Wait()
	if err != nil {
		return nil, err
	}
	if _, err := child.ReceiveAll[bool](buyers); err != nil {
		return nil, err
	}
	first, second := buyers[0], buyers[1]
	r := &PauseResult{Guard: guard}
	if err := first.Step(&r.Entries[0]); err != nil {
		return nil, err
	}
	if err := first.Stop(); err != nil {
		return nil, err
	}
	defer func() { _ = first.Continue() }() // before Wait
	r.Stopped = time.Now().UnixNano()
	if err := second.Step(&r.Entries[1]); err != nil {
		return nil, err
	}
	if err := second.Step(&r.Exits[1]); err != nil {
		return nil, err
	}
	if err := first.Send(true); err != nil { // it reads this when it continues
		return nil, err
	}
	r.Continued = time.Now().UnixNano()
	if err := first.Continue(); err != nil {
		return nil, err
	}
	if err := first.Receive(&r.Exits[0]); err != nil {
		return nil, err
	}
	r.FinalStock, err = p.Stock.Left(ctx)
	return r, err
}

// Since returns the time from the begin of the run to an instant.
func (r *PauseResult) Since(at int64) time.Duration { return time.Duration(at - r.Entries[0].Locked) }

// Story describes the run, one event a line.
func (r *PauseResult) Story() []string {
	line := func(at int64, format string, values ...any) string {
		return fmt.Sprintf("%7.3f s  ", r.Since(at).Seconds()) + fmt.Sprintf(format, values...)
	}
	first, second := r.Entries[0], r.Entries[1]
	end := "and sells one that is not there"
	if !r.Exits[0].Sold {
		end = fmt.Sprintf("and is refused: the row has seen token %d", second.Token)
	}
	return []string{
		line(first.Locked, "process 1 acquires the lock with token %d, and reads: %d in stock", first.Token, first.Stock),
		line(r.Stopped, "process 1 is stopped just before it writes (SIGSTOP)"),
		line(second.Locked, "process 2 acquires the lock, which has expired, with token %d, and reads: %d in stock", second.Token, second.Stock),
		line(r.Exits[1].Wrote, "process 2 sells one, and releases the lock"),
		line(r.Continued, "process 1 goes on where it was (SIGCONT), %s", end),
	}
}

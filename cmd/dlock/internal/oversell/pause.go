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

// Entry is that a buyer has got the lock and read the stock.
type Entry struct {
	Locked int64 // when, in Unix nanoseconds
	Token  uint64
	Stock  int
	Read   int64
}

// Exit is what came of it.
type Exit struct {
	Wrote   int64
	Sold    bool
	Refused string // why it was not
	Left    int64  // when the lock was given back, or found lost
}

// Enter acquires the lock, reads the stock, thinks, and makes sure that the lock is still
// held, as every program should just before it writes.
func (b *Buyer) Enter(ctx context.Context) (*Entry, error) {
	lease, err := b.Client.Lock(ctx, PauseLockName, dlock.WithTTL(b.TTL), dlock.WithWait(b.Wait))
	if err != nil {
		return nil, err
	}
	b.lease, b.row = lease, b.Stock
	if b.Guard == Fenced {
		b.row = &fencedRow{b.Stock, lease.Token()}
	}
	entry := &Entry{Locked: time.Now().UnixNano(), Token: lease.Token()}
	if entry.Stock, err = b.row.read(lease.Context()); err != nil {
		return nil, err
	}
	entry.Read = time.Now().UnixNano()
	select {
	case <-time.After(b.Think):
	case <-lease.Context().Done():
	}
	return entry, context.Cause(lease.Context())
}

// Buy writes, without another look at the lease: a pause can always come after the last
// look. The context is not that of the lease for the same reason.
func (b *Buyer) Buy(ctx context.Context) (*Exit, error) {
	exit := &Exit{}
	err := b.row.take(ctx)
	exit.Wrote = time.Now().UnixNano()
	switch {
	case err == nil:
		exit.Sold = true
	case errors.Is(err, fence.ErrStale):
		exit.Refused = err.Error()
	default:
		return nil, err
	}
	_ = b.lease.Unlock(ctx) // it may be lost, which is what this is about
	exit.Left = time.Now().UnixNano()
	return exit, nil
}

// Pause is the scenario: one is in stock. The first process acquires the lock, finds one
// in stock and is stopped before it writes, for longer than its lock lasts. The second
// gets the lock when it has expired, sells the one, and then the first goes on.
type Pause struct {
	Stock *Stock

	// Hire starts the process of a buyer. It says when it is ready, enters when it is
	// told to and tells its Entry, and buys when it is told to and tells its Exit.
	Hire func(ctx context.Context, guard Guard) (*child.Process, error)
}

// PauseResult is what came of one run.
type PauseResult struct {
	Guard              Guard
	Entries            [2]Entry
	Exits              [2]Exit
	Stopped, Continued int64 // the first process, in Unix nanoseconds
	FinalStock         int
}

// Sold counts what the buyers were told they bought.
func (r *PauseResult) Sold() (sold int) {
	for _, exit := range r.Exits {
		if exit.Sold {
			sold++
		}
	}
	return sold
}

// PauseStock is what there is to sell.
const PauseStock = 1

// Run fills the stock and lets both processes buy. When it returns nothing runs any
// more.
func (p *Pause) Run(ctx context.Context, guard Guard) (*PauseResult, error) {
	if err := p.Stock.Restock(ctx, PauseStock); err != nil {
		return nil, err
	}
	result := &PauseResult{Guard: guard}
	first, err := p.hire(ctx, guard)
	if err != nil {
		return nil, err
	}
	defer first.Wait()
	second, err := p.hire(ctx, guard)
	if err != nil {
		return nil, err
	}
	defer second.Wait()

	if err := ask(ctx, first, &result.Entries[0]); err != nil {
		return nil, err
	}
	if err := first.Pause(); err != nil {
		return nil, err
	}
	defer func() { _ = first.Resume() }() // before Wait, whatever happens
	result.Stopped = time.Now().UnixNano()
	if err := ask(ctx, second, &result.Entries[1]); err != nil {
		return nil, err
	}
	if err := ask(ctx, second, &result.Exits[1]); err != nil {
		return nil, err
	}
	if err := first.Tell(true); err != nil { // it finds that when it goes on
		return nil, err
	}
	result.Continued = time.Now().UnixNano()
	if err := first.Resume(); err != nil {
		return nil, err
	}
	if err := hear(ctx, first, &result.Exits[0]); err != nil {
		return nil, err
	}
	result.FinalStock, err = p.Stock.Left(ctx)
	return result, err
}

func (p *Pause) hire(ctx context.Context, guard Guard) (*child.Process, error) {
	process, err := p.Hire(ctx, guard)
	if err != nil {
		return nil, err
	}
	var ready bool
	if err := hear(ctx, process, &ready); err != nil {
		process.Wait()
		return nil, err
	}
	return process, nil
}

// ask lets a process do its next step, and hears what came of it.
func ask(ctx context.Context, process *child.Process, answer any) error {
	if err := process.Tell(true); err != nil {
		return err
	}
	return hear(ctx, process, answer)
}

// hear prefers the reason for which a process was ended to what it said then.
func hear(ctx context.Context, process *child.Process, answer any) error {
	err := process.Hear(answer)
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// Since describes an instant of a run, in seconds after its begin.
func (r *PauseResult) Since(at int64) time.Duration { return time.Duration(at - r.Entries[0].Locked) }

// Story tells the run, one event a line.
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
		line(r.Exits[1].Wrote, "process 2 sells one, and gives the lock back"),
		line(r.Continued, "process 1 goes on where it was (SIGCONT), %s", end),
	}
}

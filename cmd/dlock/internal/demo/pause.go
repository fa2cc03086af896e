package demo

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/cmd/dlock/internal/child"
	"github.com/dlock-go/dlock/cmd/dlock/internal/terminal"
	"github.com/dlock-go/dlock/cmd/dlock/internal/timeline"
	"github.com/dlock-go/dlock/fence"
	"github.com/dlock-go/dlock/internal/backoff"
)

const (
	pauseStock  = 1
	expirySlack = 30 * time.Second // after the TTL: stores that watch sessions need some seconds more
)

// Pause is the demo in which a holder is stopped for longer than its lock lasts.
type Pause struct {
	Stage
	TTL time.Duration
}

// Check rejects invalid options.
func (p *Pause) Check() error {
	const least, most = 500 * time.Millisecond, time.Minute
	if p.TTL < least || p.TTL > most {
		return usagef("--ttl %v is outside %v to %v", p.TTL, least, most)
	}
	return p.checkDatabase()
}

// PauseJSON is one run in the output of --json.
type PauseJSON struct {
	Guard      Guard     `json:"guard"`
	Stock      int       `json:"stock"`
	Sold       int       `json:"sold"`
	FinalStock int       `json:"final_stock"`
	Refused    int       `json:"refused"`
	Tokens     [2]uint64 `json:"tokens"` // of the two processes
	TTLMS      int64     `json:"ttl_ms"`
	PausedMS   int64     `json:"paused_ms"`
}

// Run runs the demo with each guard.
func (p *Pause) Run(ctx context.Context) error {
	p.TTL = max(p.TTL, p.Store.MinTTL)
	return p.withStock(ctx, p.show)
}

func (p *Pause) show(ctx context.Context, stock *stockTable) error {
	p.note("%d in stock, 2 processes, a TTL of %v; the stock is in %s, the lock is in %s", pauseStock, p.TTL, p.database, p.Store.Name)
	p.table.Columns = columns("GUARD", "SOLD", "FINAL STOCK=0", "REFUSED", "PAUSED")
	paint := terminal.PainterFor(p.Stdout)
	exact := true
	for _, guard := range []Guard{Dlock, Fenced} {
		r, err := p.pause(ctx, stock, guard)
		if err != nil {
			return err
		}
		paused := time.Duration(r.continued - r.stopped)
		refused := len(r.exits) - r.sold()
		if guard == Fenced {
			exact = r.finalStock == 0 && r.sold() == pauseStock
		}
		if !p.JSON {
			story := fmt.Sprintf("%s\n  %s\n\n", paint.Paint(terminal.Bold, string(guard)), strings.Join(r.story(), "\n  "))
			if err := terminal.Print(p.Stdout, story); err != nil {
				return err
			}
		}
		if err := p.add(p.draw(guard, r), PauseJSON{guard, pauseStock, r.sold(), r.finalStock, refused,
			[2]uint64{r.entries[0].Token, r.entries[1].Token}, p.TTL.Milliseconds(), paused.Milliseconds()},
			guard, r.sold(), r.finalStock, refused, fmt.Sprintf("%.1f s", paused.Seconds())); err != nil {
			return err
		}
	}
	return p.finish(exact, fmt.Sprintf("with the fence exactly %d should have been sold", pauseStock), "dlock demo pause",
		fmt.Sprintf("Process 1 holds the lock with a TTL of %v, has read that one is in stock, and is stopped just before it writes. Process 2 gets the lock when it has expired, and sells the one. Then process 1 goes on where it was, and writes.", p.TTL),
		"No lock that expires can prevent that. The token can: the row remembers the largest one that wrote it, and refuses a smaller one.",
		fmt.Sprintf("The stock is in %s, the lock is in %s.", p.database, p.Store.Name))
}

var pauseCaptions = map[Guard]string{
	Dlock:  "the lock alone",
	Fenced: "the row checks\nthe token",
}

// draw returns the drawing of a result. Its time begins with the first lock.
func (p *Pause) draw(guard Guard, r *pauseResult) timeline.Run {
	first, second := r.entries[0], r.entries[1]
	late := "writes without its lock and is refused"
	if r.exits[0].Sold > 0 {
		late = "writes without its lock and sells one"
	}
	run := timeline.Run{Name: string(guard), Caption: pauseCaptions[guard], Lanes: []string{"process 1", "process 2"}, Of: "in stock"}
	run.Verdict, run.Bad, run.Stock = stockVerdict(r.finalStock, r.sold(), pauseStock), r.finalStock < 0, pauseStock
	run.Length = r.since(max(r.exits[0].Left, r.exits[1].Left)) + p.TTL/8 // so that the end can be seen
	run.Spans = []timeline.Span{
		{Lane: 0, From: r.since(first.Locked), To: r.since(r.stopped), Label: fmt.Sprintf("process 1 holds the lock, token %d", first.Token)},
		{Lane: 0, From: r.since(r.stopped), To: r.since(r.continued), Kind: timeline.Paused, Label: "process 1 is stopped"},
		{Lane: 0, From: r.since(r.continued), To: r.since(r.exits[0].Left), Kind: timeline.Late, Label: "process 1 " + late},
		{Lane: 1, From: r.since(second.Locked), To: r.since(r.exits[1].Left), Label: fmt.Sprintf("process 2 holds the lock, token %d, and sells one", second.Token)},
	}
	for _, i := range []int{1, 0} { // in the order of time
		if r.exits[i].Sold > 0 {
			run.Sales = append(run.Sales, r.since(r.exits[i].Wrote))
		}
	}
	return run
}

type pauseResult struct {
	entries            [2]buyerEntry
	exits              [2]buyerExit
	stopped, continued int64 // when the first process was, in Unix nanoseconds
	finalStock         int
}

// sold counts the sales by what the buyers know.
func (r *pauseResult) sold() int { return r.exits[0].Sold + r.exits[1].Sold }

// pause fills the stock and lets both processes buy. The first one is stopped before it writes,
// until the second one has sold. When pause returns, no process runs any more.
func (p *Pause) pause(ctx context.Context, stock *stockTable, guard Guard) (*pauseResult, error) {
	if err := stock.restock(ctx, pauseStock); err != nil {
		return nil, err
	}
	task := shopTask{Guard: guard, Database: p.Database, Folder: p.Folder, Table: stock.table, Store: p.Store, Processes: 2, TTL: p.TTL}
	buyers, _, err := child.Start[bool](ctx, 2, buyerRole, task)
	defer buyers.Wait()
	if err != nil {
		return nil, err
	}
	first, second, r := buyers[0], buyers[1], &pauseResult{}
	defer func() { _ = first.Continue() }() // before Wait
	for _, step := range []func() error{
		func() error { return first.Step(&r.entries[0]) },
		first.Stop,
		func() error {
			r.stopped = time.Now().UnixNano()
			return second.Step(&r.entries[1])
		},
		func() error { return second.Step(&r.exits[1]) },
		func() error { return first.Send(true) }, // it reads this when it continues
		func() error {
			r.continued = time.Now().UnixNano()
			return first.Continue()
		},
		func() error { return first.Receive(&r.exits[0]) },
	} {
		if err := step(); err != nil {
			return nil, err
		}
	}
	r.finalStock, err = stock.read(ctx)
	return r, err
}

// since returns the time from the begin of the run to an instant.
func (r *pauseResult) since(at int64) time.Duration { return time.Duration(at - r.entries[0].Locked) }

func (r *pauseResult) story() []string {
	line := func(at int64, format string, values ...any) string {
		return fmt.Sprintf("%7.3f s  ", r.since(at).Seconds()) + fmt.Sprintf(format, values...)
	}
	first, second := r.entries[0], r.entries[1]
	end := "and sells one that is not there"
	if r.exits[0].Sold == 0 {
		end = fmt.Sprintf("and is refused: the row has seen token %d", second.Token)
	}
	return []string{
		line(first.Locked, "process 1 acquires the lock with token %d, and reads: %d in stock", first.Token, first.Stock),
		line(r.stopped, "process 1 is stopped just before it writes (SIGSTOP)"),
		line(second.Locked, "process 2 acquires the lock, which has expired, with token %d, and reads: %d in stock", second.Token, second.Stock),
		line(r.exits[1].Wrote, "process 2 sells one, and releases the lock"),
		line(r.continued, "process 1 goes on where it was (SIGCONT), %s", end),
	}
}

// buyerEntry is what a buyer knows before it writes. Times are Unix nanoseconds.
type buyerEntry struct {
	Locked int64
	Token  uint64
	Stock  int
}

type buyerExit struct {
	Wrote int64
	Sold  int   // 0: the row has refused the write
	Left  int64 // when the lock was released, or found lost
}

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
	lease, entry, err := s.lockAndRead(parent.Context)
	if err != nil {
		return err
	}
	if err := parent.AwaitStep(entry); err != nil {
		return err
	}
	exit := buyerExit{Sold: 1}
	if err = s.row(entry.Token).take(parent.Context); errors.Is(err, fence.ErrStale) {
		exit.Sold = 0
	} else if err != nil {
		return err
	}
	exit.Wrote = time.Now().UnixNano()
	_ = lease.Unlock(parent.Context) // the lock may be lost, as the demo intends
	exit.Left = time.Now().UnixNano()
	return parent.Send(exit)
}

// lockAndRead acquires the lock, reads the stock, thinks, and checks that the lock is still held. If a
// slow machine has lost it, lockAndRead begins again. The lock is not renewed: a process that is
// stopped during a renewal keeps a database of one file from all others.
func (s *shop) lockAndRead(ctx context.Context) (*dlock.Lease, buyerEntry, error) {
	for {
		lease, err := s.client.Lock(ctx, PauseLock, dlock.WithFixedTTL(s.TTL), dlock.WithWait(2*s.TTL+expirySlack))
		if errors.Is(err, dlock.ErrHeld) {
			return nil, buyerEntry{}, errors.New("this store keeps the lock of a stopped process for as long as its connection lives: use another one for this demo")
		}
		if err != nil {
			return nil, buyerEntry{}, err
		}
		entry := buyerEntry{Locked: time.Now().UnixNano(), Token: lease.Token()}
		if entry.Stock, err = s.row(entry.Token).read(ctx); err != nil {
			return nil, buyerEntry{}, err
		}
		_ = backoff.Sleep(lease.Context(), s.TTL/5)
		if lease.Context().Err() == nil {
			return lease, entry, nil
		}
		_ = lease.Unlock(ctx) // it is lost
	}
}

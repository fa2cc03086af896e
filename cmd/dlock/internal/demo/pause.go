package demo

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/cmd/dlock/internal/child"
	"github.com/dlock-go/dlock/cmd/dlock/internal/oversell"
	"github.com/dlock-go/dlock/cmd/dlock/internal/terminal"
	"github.com/dlock-go/dlock/cmd/dlock/internal/timeline"
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
	Guard      oversell.Guard `json:"guard"`
	Stock      int            `json:"stock"`
	Sold       int            `json:"sold"`
	FinalStock int            `json:"final_stock"`
	Refused    int            `json:"refused"`
	Tokens     [2]uint64      `json:"tokens"` // of the two processes
	TTLMS      int64          `json:"ttl_ms"`
	PausedMS   int64          `json:"paused_ms"`
}

// Run runs the demo with each guard.
func (p *Pause) Run(ctx context.Context) error {
	task := shopTask{Database: p.Database, Folder: p.Folder, Table: oversell.NewTable(), Store: p.Store, TTL: p.TTL}
	return p.withStock(ctx, task.Table, func(stock *oversell.Stock, database string) error {
		return p.show(ctx, database, &oversell.Pause{
			Stock: stock,
			Start: func(ctx context.Context, guard oversell.Guard) (*child.Process, error) {
				task := task
				task.Guard = guard
				return startChild(ctx, buyerRole, task)
			},
		})
	})
}

func (p *Pause) show(ctx context.Context, database string, scenario *oversell.Pause) error {
	p.note("%d in stock, 2 processes, a TTL of %v; the stock is in %s, the lock is in %s", oversell.PauseStock, p.TTL, database, p.Store.Name)
	p.table.Columns = []terminal.Column{
		{Title: "GUARD"},
		{Title: "SOLD", Right: true},
		{Title: "FINAL STOCK", Right: true, Want: "0"},
		{Title: "REFUSED", Right: true},
		{Title: "PAUSED", Right: true},
	}
	paint := terminal.PainterFor(p.Stdout)
	exact := true
	for _, guard := range oversell.PauseGuards {
		r, err := scenario.Run(ctx, guard)
		if err != nil {
			return err
		}
		paused := time.Duration(r.Continued - r.Stopped)
		refused := len(r.Exits) - r.Sold()
		if guard == oversell.Fenced {
			exact = r.FinalStock == 0 && r.Sold() == oversell.PauseStock
		}
		if !p.JSON {
			story := fmt.Sprintf("%s\n  %s\n\n", paint.Paint(terminal.Bold, string(guard)), strings.Join(r.Story(), "\n  "))
			if err := terminal.Print(p.Stdout, story); err != nil {
				return err
			}
		}
		if err := p.add(p.draw(r), PauseJSON{guard, oversell.PauseStock, r.Sold(), r.FinalStock, refused,
			[2]uint64{r.Entries[0].Token, r.Entries[1].Token}, p.TTL.Milliseconds(), paused.Milliseconds()},
			string(guard), strconv.Itoa(r.Sold()), strconv.Itoa(r.FinalStock), strconv.Itoa(refused), fmt.Sprintf("%.1f s", paused.Seconds())); err != nil {
			return err
		}
	}
	err := p.finish("dlock demo pause",
		fmt.Sprintf("Process 1 holds the lock with a TTL of %v, has read that one is in stock, and is stopped just before it writes. Process 2 gets the lock when it has expired, and sells the one. Then process 1 goes on where it was, and writes.", p.TTL),
		"No lock that expires can prevent that. The token can: the row remembers the largest one that wrote it, and refuses a smaller one.",
		fmt.Sprintf("The stock is in %s, the lock is in %s.", database, p.Store.Name))
	if err == nil && !exact {
		err = ResultError{fmt.Errorf("with the fence exactly %d should have been sold", oversell.PauseStock)}
	}
	return err
}

var pauseCaptions = map[oversell.Guard]string{
	oversell.Dlock:  "the lock alone",
	oversell.Fenced: "the row checks\nthe token",
}

// draw returns the drawing of a result. Its time begins with the first lock.
func (p *Pause) draw(r *oversell.PauseResult) timeline.Run {
	first, second := r.Entries[0], r.Entries[1]
	late := "writes without its lock and is refused"
	if r.Exits[0].Sold {
		late = "writes without its lock and sells one"
	}
	run := newRun(string(r.Guard), pauseCaptions[r.Guard], 2)
	run.Verdict, run.Bad, run.Stock = stockVerdict(r.FinalStock, r.Sold(), oversell.PauseStock), r.FinalStock < 0, oversell.PauseStock
	run.Length = r.Since(max(r.Exits[0].Left, r.Exits[1].Left)) + p.TTL/8 // so that the end can be seen
	run.Spans = []timeline.Span{
		{Lane: 0, From: r.Since(first.Locked), To: r.Since(r.Stopped), Label: fmt.Sprintf("process 1 holds the lock, token %d", first.Token)},
		{Lane: 0, From: r.Since(r.Stopped), To: r.Since(r.Continued), Kind: timeline.Paused, Label: "process 1 is stopped"},
		{Lane: 0, From: r.Since(r.Continued), To: r.Since(r.Exits[0].Left), Kind: timeline.Late, Label: "process 1 " + late},
		{Lane: 1, From: r.Since(second.Locked), To: r.Since(r.Exits[1].Left), Label: fmt.Sprintf("process 2 holds the lock, token %d, and sells one", second.Token)},
	}
	for _, i := range []int{1, 0} { // in the order of time
		if r.Exits[i].Sold {
			run.Sales = append(run.Sales, r.Since(r.Exits[i].Wrote))
		}
	}
	return run
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
	buyer := &oversell.Buyer{Guard: task.Guard, Stock: stock, Client: client, TTL: ttl, Wait: 2*ttl + expirySlack, Think: ttl / 5}
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

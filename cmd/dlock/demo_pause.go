package main

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
	"github.com/dlock-go/dlock/cmd/dlock/internal/supervise"
	"github.com/dlock-go/dlock/cmd/dlock/internal/terminal"
	"github.com/dlock-go/dlock/cmd/dlock/internal/timeline"
	"github.com/spf13/cobra"
)

// pauseFlags are the flags of demo pause.
type pauseFlags struct {
	database  string // URL
	ttl       time.Duration
	json      bool
	html, svg string // files
}

const pauseHelp = `Stop a process that holds a lock for longer than the lock lasts, and see what it
does when it goes on.

One is in stock. Process 1 acquires the lock, reads the stock, thinks, makes sure that
it still has the lock, and is stopped just before it writes, with SIGSTOP: a pause of
the virtual machine, a slow disk or a long garbage collection are the same. Its lock
expires. Process 2 acquires it, finds one in stock and sells it. Then process 1 goes
on where it was, and writes. This runs twice:

  dlock    the lock alone: both have sold the last one. No lock that expires can
           prevent that, because the pause can come after the last look at the lock
  fenced   the row remembers the largest token that wrote it, and refuses the write
           of process 1, whose token is smaller (package fence, DLOCK_TOKEN)

The stock is in an SQLite file; with --db in a table with a name of its own, which
is removed at the end. The lock is in --store or $` + storeVariable + `, or else in
another SQLite file.

With --json each run is one JSON object on a line of its own:
  {"guard":"dlock","stock":1,"sold":2,"final_stock":-1,"refused":0,"tokens":[1,2],
   "ttl_ms":2000,"paused_ms":2071}

The exit status is 0 if fenced has sold exactly what was there, 1 if not, 64 for wrong
usage, and 69 if the store or the database cannot be used.`

func (a *app) pauseCommand() *cobra.Command {
	var flags pauseFlags
	cmd := &cobra.Command{
		Use:   "pause",
		Short: "Stop a holder for longer than its lock lasts",
		Long:  pauseHelp,
		Example: `  dlock demo pause
  dlock demo pause --html pause.html                  # and see it on a timeline
  dlock demo pause --store redis://localhost --ttl 5
  dlock demo pause --json | jq -r '[.guard, .final_stock] | @tsv'`,
		Args: exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := flags.check(); err != nil {
				return err
			}
			return a.stage(cmd.Context(), func(ctx context.Context, folder string) error {
				return a.pause(ctx, &flags, folder)
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&flags.database, "db", "", "`URL` of the shop's database: mysql://, mariadb:// or postgres://; default: an SQLite file")
	addDuration(f, &flags.ttl, "ttl", "", 2*time.Second, "`DUR` after which the lock of the process that is stopped expires")
	f.BoolVar(&flags.json, "json", false, "one JSON object a line")
	f.StringVar(&flags.html, "html", "", "write a page with timelines to `FILE`")
	f.StringVar(&flags.svg, "svg", "", "write a picture of both runs to `FILE`")
	return cmd
}

func (f *pauseFlags) check() error {
	const least, most = 500 * time.Millisecond, time.Minute
	if f.ttl < least || f.ttl > most {
		return usagef("--ttl %v is outside %v to %v", f.ttl, least, most)
	}
	if f.database != "" {
		if _, err := demoTarget(f.database); err != nil {
			return err
		}
	}
	return nil
}

// pause is the demo.
func (a *app) pause(ctx context.Context, flags *pauseFlags, folder string) error {
	self, err := supervise.Executable()
	if err != nil {
		return err
	}
	show := &pauseShow{app: a, flags: flags}
	if err := show.files.open(flags.html, flags.svg); err != nil {
		return err
	}
	defer show.files.close()
	order := buyerOrder{shopOrder: shopOrder{Database: flags.database, Folder: folder, Table: oversell.NewTable(), Processes: 2}, TTL: flags.ttl}
	if order.Store, show.store, err = a.chooseDemoStore(ctx, folder, oversell.PauseLockName); err != nil {
		return err
	}
	return a.withStock(ctx, &order.shopOrder, func(stock *oversell.Stock, database string) error {
		show.database = database
		return show.run(ctx, &oversell.Pause{
			Stock: stock,
			Hire: func(ctx context.Context, guard oversell.Guard) (*child.Process, error) {
				order := order
				order.Guard = guard
				return child.Start(ctx, self, buyerName, order)
			},
		})
	})
}

// pauseJSON is one run in the output of --json.
type pauseJSON struct {
	Guard      oversell.Guard `json:"guard"`
	Stock      int            `json:"stock"`
	Sold       int            `json:"sold"`
	FinalStock int            `json:"final_stock"`
	Refused    int            `json:"refused"`
	Tokens     [2]uint64      `json:"tokens"` // of the two processes
	TTLMS      int64          `json:"ttl_ms"`
	PausedMS   int64          `json:"paused_ms"`
}

// pauseShow shows the runs: as text or as JSON, and in files.
type pauseShow struct {
	*app
	flags           *pauseFlags
	store, database string // for people
	files           drawings
	runs            []timeline.Run
	rows            [][]string
}

var pauseColumns = []terminal.Column{
	{Title: "GUARD"},
	{Title: "SOLD", Right: true},
	{Title: "FINAL STOCK", Right: true, Want: "0"},
	{Title: "REFUSED", Right: true},
	{Title: "PAUSED", Right: true},
}

func (s *pauseShow) run(ctx context.Context, scenario *oversell.Pause) error {
	if !s.flags.json {
		s.note("%d in stock, 2 processes, a TTL of %v; the stock is in %s, the lock is in %s",
			oversell.PauseStock, s.flags.ttl, s.database, s.store)
	}
	paint := terminal.PainterFor(s.stdout)
	t := terminal.Table{Columns: pauseColumns}
	exact := true
	for _, guard := range oversell.PauseGuards {
		result, err := scenario.Run(ctx, guard)
		if err != nil {
			return err
		}
		paused := time.Duration(result.Continued - result.Stopped)
		refused := len(result.Exits) - result.Sold()
		if guard == oversell.Fenced {
			exact = result.FinalStock == 0 && result.Sold() == oversell.PauseStock
		}
		row := []string{string(guard), strconv.Itoa(result.Sold()), strconv.Itoa(result.FinalStock), strconv.Itoa(refused), fmt.Sprintf("%.1f s", paused.Seconds())}
		s.rows = append(s.rows, row)
		t.Add(row...)
		s.runs = append(s.runs, s.timeline(result))
		if s.flags.json {
			err = printJSON(s.stdout, pauseJSON{guard, oversell.PauseStock, result.Sold(), result.FinalStock, refused,
				[2]uint64{result.Entries[0].Token, result.Entries[1].Token}, s.flags.ttl.Milliseconds(), paused.Milliseconds()})
		} else {
			_, err = fmt.Fprintf(s.stdout, "%s\n  %s\n\n", paint.Paint(terminal.Bold, string(guard)), strings.Join(result.Story(), "\n  "))
			err = terminal.OutputError(err)
		}
		if err != nil {
			return err
		}
	}
	if !s.flags.json {
		if err := t.Print(s.stdout, paint); err != nil {
			return err
		}
	}
	if err := s.write(); err != nil {
		return err
	}
	if !exact {
		return failf(exitNo, "with the fence exactly %d should have been sold", oversell.PauseStock)
	}
	return nil
}

var pauseCaptions = map[oversell.Guard]string{
	oversell.Dlock:  "the lock alone",
	oversell.Fenced: "the row checks\nthe token",
}

// timeline turns a result into a drawing. Its time begins with the first lock.
func (s *pauseShow) timeline(r *oversell.PauseResult) timeline.Run {
	first, second := r.Entries[0], r.Entries[1]
	late := "writes without its lock and is refused"
	if r.Exits[0].Sold {
		late = "writes without its lock and sells one"
	}
	end := max(r.Exits[0].Left, r.Exits[1].Left)
	run := timeline.Run{
		Name:    string(r.Guard),
		Caption: pauseCaptions[r.Guard],
		Verdict: fmt.Sprintf("%s left\n%d sold of %d", strings.Replace(strconv.Itoa(r.FinalStock), "-", "\u2212", 1), r.Sold(), oversell.PauseStock),
		Bad:     r.FinalStock < 0,
		Lanes:   []string{"process 1", "process 2"},
		Stock:   oversell.PauseStock,
		Length:  r.Since(end) + s.flags.ttl/8, // so that the end can be seen
		Spans: []timeline.Span{
			{Lane: 0, From: r.Since(first.Locked), To: r.Since(r.Stopped), Label: fmt.Sprintf("process 1 holds the lock, token %d", first.Token)},
			{Lane: 0, From: r.Since(r.Stopped), To: r.Since(r.Continued), Kind: timeline.Paused, Label: "process 1 is stopped"},
			{Lane: 0, From: r.Since(r.Continued), To: r.Since(r.Exits[0].Left), Kind: timeline.Late, Label: "process 1 " + late},
			{Lane: 1, From: r.Since(second.Locked), To: r.Since(r.Exits[1].Left), Label: fmt.Sprintf("process 2 holds the lock, token %d, and sells one", second.Token)},
		},
	}
	for _, i := range []int{1, 0} { // in the order of time
		if r.Exits[i].Sold {
			run.Sales = append(run.Sales, r.Since(r.Exits[i].Wrote))
		}
	}
	return run
}

// write writes the files that were asked for.
func (s *pauseShow) write() error {
	const marked = 2
	return s.files.write(pauseColumns, timeline.Page{
		Title: "dlock demo pause",
		Intro: []string{
			fmt.Sprintf("Process 1 holds the lock with a TTL of %v, has read that one is in stock, and is stopped just before it writes. Process 2 gets the lock when it has expired, and sells the one. Then process 1 goes on where it was, and writes.", s.flags.ttl),
			"No lock that expires can prevent that. The token can: the row remembers the largest one that wrote it, and refuses a smaller one.",
			fmt.Sprintf("The stock is in %s, the lock is in %s.", s.database, s.store),
		},
		Marked: marked,
		Table:  s.rows,
		Runs:   s.runs,
	})
}

// buyerName is the argv[0] of a process that buys.
const buyerName = "dlock-demo-buyer"

// buyerOrder is what such a process is told.
type buyerOrder struct {
	shopOrder
	TTL time.Duration
}

// expiryLimit is how much longer than its TTL a lock may take to expire: stores that
// watch sessions need some seconds more, and a machine may be busy.
const expiryLimit = 30 * time.Second

// buyerProcess is the whole program of such a process.
func buyerProcess(parent *child.Parent) error {
	var order buyerOrder
	if err := parent.Hear(&order); err != nil {
		return err
	}
	ctx := parent.Context
	db, err := openDemoDatabase(ctx, order.Database, order.Folder, 2)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	stock, err := oversell.OpenStock(db.DB, db.dialect, order.Table)
	if err != nil {
		return err
	}
	client, closeAll, err := order.Store.client(ctx)
	if err != nil {
		return err
	}
	defer closeAll()
	traits := client.Traits()
	ttl := min(max(order.TTL, traits.MinTTL), traits.LongestTTL())
	buyer := &oversell.Buyer{Guard: order.Guard, Stock: stock, Client: client, TTL: ttl, Wait: 2*ttl + expiryLimit, Think: ttl / 5}
	return buyInSteps(parent, buyer)
}

// buyInSteps does each step when the parent says so.
func buyInSteps(parent *child.Parent, buyer *oversell.Buyer) error {
	var next bool
	if err := parent.Tell(true); err != nil {
		return err
	}
	if err := parent.Hear(&next); err != nil {
		return err
	}
	entry, err := buyer.Enter(parent.Context)
	if errors.Is(err, dlock.ErrHeld) {
		return failf(exitUnavailable, "this store keeps the lock of a process that is stopped, for as long as its connection lives: use another one for this demo")
	}
	if err != nil {
		return err
	}
	if err := parent.Tell(entry); err != nil {
		return err
	}
	if err := parent.Hear(&next); err != nil {
		return err
	}
	exit, err := buyer.Buy(parent.Context)
	if err != nil {
		return err
	}
	return parent.Tell(exit)
}

package demo

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dlock-go/dlock/cmd/dlock/internal/child"
	"github.com/dlock-go/dlock/cmd/dlock/internal/oversell"
	"github.com/dlock-go/dlock/cmd/dlock/internal/supervise"
	"github.com/dlock-go/dlock/cmd/dlock/internal/terminal"
	"github.com/dlock-go/dlock/cmd/dlock/internal/timeline"
)

// Oversell is the demo in which several processes sell the same stock.
type Oversell struct {
	Stage
	Nginx     bool // balance with nginx
	Processes int
	Clients   int
	Requests  int // of each client
	InStock   int
	Think     time.Duration
}

// Limits of the options: what a machine can do.
const (
	maxProcesses = 50
	maxClients   = 1000
	maxRequests  = 100_000 // of all clients
)

// Check rejects invalid options.
func (o *Oversell) Check() error {
	switch {
	case o.Processes < 1 || o.Processes > maxProcesses:
		return usagef("--processes %d is outside 1 to %d", o.Processes, maxProcesses)
	case o.Clients < 1 || o.Clients > maxClients:
		return usagef("--clients %d is outside 1 to %d", o.Clients, maxClients)
	case o.Requests < 1 || o.Requests > maxRequests/o.Clients:
		return usagef("--requests %d is outside 1 to %d for %d clients", o.Requests, maxRequests/o.Clients, o.Clients)
	case o.InStock < 1 || o.InStock >= o.Clients*o.Requests:
		return usagef("--stock %d is outside 1 to %d: with %d requests no more could be sold than is there",
			o.InStock, o.Clients*o.Requests-1, o.Clients*o.Requests)
	case o.Think < 0:
		return usagef("--think %v is negative", o.Think)
	}
	return o.checkDatabase()
}

// OversellJSON is one run in the output of --json.
type OversellJSON struct {
	Guard        oversell.Guard `json:"guard"`
	Requests     int            `json:"requests"`
	Sold         int            `json:"sold"`
	FinalStock   int            `json:"final_stock"`
	Stock        int            `json:"stock"`
	AtOnce       int            `json:"at_once"`
	Refused      int            `json:"refused"`
	Processes    int            `json:"processes"`
	Clients      int            `json:"clients"`
	Seconds      float64        `json:"seconds"`
	RequestsPerS float64        `json:"requests_per_s"`
	WaitP50MS    float64        `json:"wait_p50_ms"`
	WaitP99MS    float64        `json:"wait_p99_ms"`
}

// Run runs the demo with each guard.
func (o *Oversell) Run(ctx context.Context) (err error) {
	task := shopTask{Database: o.Database, Folder: o.Folder, Table: oversell.NewTable(), Store: o.Store, Processes: o.Processes, Think: o.Think}
	scenario := &oversell.Scenario{
		Processes: o.Processes, Clients: o.Clients, Requests: o.Requests, InStock: o.InStock,
		NginxAttributes: supervise.ChildAttributes(), Folder: o.Folder,
		Start: func(ctx context.Context, guard oversell.Guard) (*child.Process, error) {
			task := task
			task.Guard = guard
			return startChild(ctx, shopRole, task)
		},
	}
	if o.Nginx {
		if scenario.Nginx, err = oversell.FindNginx(); err != nil {
			return err
		}
	}
	return o.withStock(ctx, task.Table, func(stock *oversell.Stock, database string) error {
		scenario.Stock = stock
		return o.show(ctx, scenario, database)
	})
}

func (o *Oversell) show(ctx context.Context, scenario *oversell.Scenario, database string) error {
	all := o.Clients * o.Requests
	o.note("%d in stock, %d requests, %d processes; the stock is in %s, the locks are in %s", o.InStock, all, o.Processes, database, o.Store.Name)
	o.table.Columns = []terminal.Column{
		{Title: "GUARD"},
		{Title: "REQUESTS", Right: true},
		{Title: "SOLD", Right: true},
		{Title: "FINAL STOCK", Right: true, Want: "0"},
		{Title: "AT ONCE", Right: true},
		{Title: "REQUESTS/S", Right: true},
		{Title: "WAIT P50", Right: true},
		{Title: "WAIT P99", Right: true},
	}
	bar := terminal.NewProgress(o.Stderr)
	scenario.Progress = bar.Step
	exact := true
	for _, guard := range oversell.Guards {
		bar.Begin(string(guard), all, "sold")
		r, err := scenario.Run(ctx, guard)
		if err != nil {
			bar.End("")
			return err
		}
		bar.End(fmt.Sprintf("%d sold, final stock %d", r.Sold, r.FinalStock))
		if guard.Shared() {
			exact = exact && r.FinalStock == 0 && r.Sold == o.InStock
		}
		run := o.draw(r)
		atOnce := timeline.Most(run.Spans)
		err = o.add(run, OversellJSON{
			Guard: guard, Requests: r.Requests, Sold: r.Sold, FinalStock: r.FinalStock, Stock: o.InStock,
			AtOnce: atOnce, Refused: r.Refused, Processes: o.Processes, Clients: o.Clients,
			Seconds:      float64(r.Elapsed.Round(time.Millisecond)) / float64(time.Second),
			RequestsPerS: float64(int(r.Rate()*10)) / 10,
			WaitP50MS:    milliseconds(r.P50),
			WaitP99MS:    milliseconds(r.P99),
		}, string(guard), strconv.Itoa(r.Requests), strconv.Itoa(r.Sold), strconv.Itoa(r.FinalStock), strconv.Itoa(atOnce),
			strconv.FormatFloat(r.Rate(), 'f', 0, 64), waitText(r.P50), waitText(r.P99))
		if err != nil {
			return err
		}
	}
	err := o.finish("dlock demo oversell",
		fmt.Sprintf("%d clients sent %d requests each to %d processes that sell the same stock of %d. Each request reads the stock, thinks, and then writes it. A bar is the time that a request was inside, from before the read to after the write.",
			o.Clients, o.Requests, o.Processes, o.InStock),
		fmt.Sprintf("The stock is in %s, the locks are in %s.", database, o.Store.Name))
	if err == nil && !exact {
		err = ResultError{fmt.Errorf("with a lock exactly %d should have been sold", o.InStock)}
	}
	return err
}

func waitText(d time.Duration) string {
	if d < 10*time.Millisecond {
		return fmt.Sprintf("%.1f ms", milliseconds(d))
	}
	return fmt.Sprintf("%d ms", d.Milliseconds())
}

func milliseconds(d time.Duration) float64 {
	return float64(d.Round(10*time.Microsecond)) / float64(time.Millisecond)
}

var guardCaptions = map[oversell.Guard]string{
	oversell.None:   "no lock",
	oversell.Local:  "a mutex in\neach process",
	oversell.Dlock:  "one lock for\nall processes",
	oversell.Fenced: "the same, and the\nrow checks its token",
}

// draw returns the drawing of a result. Its time begins with the first visit.
func (o *Oversell) draw(r *oversell.Result) timeline.Run {
	run := newRun(string(r.Guard), guardCaptions[r.Guard], len(r.Visits))
	run.Verdict, run.Bad, run.Stock = stockVerdict(r.FinalStock, r.Sold, o.InStock), r.FinalStock < 0, o.InStock
	begin := int64(math.MaxInt64)
	for _, visits := range r.Visits {
		if len(visits) > 0 {
			begin = min(begin, visits[0].From)
		}
	}
	since := func(at int64) time.Duration { return time.Duration(at - begin) }
	for lane, visits := range r.Visits {
		for _, v := range visits {
			what := "sold nothing"
			if v.Sold != 0 {
				what = "sold one"
				run.Sales = append(run.Sales, since(v.Sold))
			}
			if v.Token != 0 {
				what += fmt.Sprintf(", token %d", v.Token)
			}
			addVisit(&run, lane, since(v.From), since(v.To), what)
		}
	}
	slices.Sort(run.Sales)
	return run
}

func stockVerdict(left, sold, stock int) string {
	return fmt.Sprintf("%s left\n%d sold of %d", strings.Replace(strconv.Itoa(left), "-", "\u2212", 1), sold, stock)
}

// shopRole is the argv[0] of a shop.
const shopRole = "dlock-demo-shop"

// allConnections is how many connections all shops together have to the database. Servers
// allow about a hundred.
const allConnections = 40

// runShop is the program of a shop.
func runShop(parent *child.Parent) error {
	var task shopTask
	if err := parent.Receive(&task); err != nil {
		return err
	}
	stock, client, closeAll, err := task.open(parent.Context, max(2, allConnections/task.Processes))
	if err != nil {
		return err
	}
	defer closeAll()
	shop := &oversell.Shop{Guard: task.Guard, Processes: task.Processes, Think: task.Think, Stock: stock, Client: client}
	if err := shop.Serve(parent.Context, func(address string) error { return parent.Send(address) }); err != nil {
		return err
	}
	return parent.Send(shop.Visits())
}

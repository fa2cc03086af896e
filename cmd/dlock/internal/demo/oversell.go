package demo

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/dlock-go/dlock/cmd/dlock/internal/child"
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

	nginx string // its path
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
	Guard        Guard   `json:"guard"`
	Requests     int     `json:"requests"`
	Sold         int     `json:"sold"`
	FinalStock   int     `json:"final_stock"`
	Stock        int     `json:"stock"`
	AtOnce       int     `json:"at_once"`
	Refused      int     `json:"refused"`
	Processes    int     `json:"processes"`
	Clients      int     `json:"clients"`
	Seconds      float64 `json:"seconds"`
	RequestsPerS float64 `json:"requests_per_s"`
	WaitP50MS    float64 `json:"wait_p50_ms"`
	WaitP99MS    float64 `json:"wait_p99_ms"`
}

// Run runs the demo with each guard.
func (o *Oversell) Run(ctx context.Context) (err error) {
	if o.Nginx {
		if o.nginx, err = exec.LookPath("nginx"); err != nil {
			return errors.New("there is no nginx in the PATH (Debian has it in /usr/sbin): install it, or leave out --nginx for the built-in proxy")
		}
	}
	return o.withStock(ctx, o.show)
}

func (o *Oversell) show(ctx context.Context, stock *stockTable) error {
	all := o.Clients * o.Requests
	o.note("%d in stock, %d requests, %d processes; the stock is in %s, the locks are in %s", o.InStock, all, o.Processes, o.database, o.Store.Name)
	o.table.Columns = columns("GUARD", "REQUESTS", "SOLD", "FINAL STOCK=0", "AT ONCE", "REQUESTS/S", "WAIT P50", "WAIT P99")
	exact := true
	for _, guard := range Guards {
		r, err := o.sell(ctx, stock, guard)
		if err != nil {
			return err
		}
		o.note("%s: %d sold, final stock %d", guard, r.sold, r.finalStock)
		if guard.Shared() {
			exact = exact && r.finalStock == 0 && r.sold == o.InStock
		}
		run := draw(guard, r.logs)
		run.Verdict, run.Bad, run.Stock = stockVerdict(r.finalStock, r.sold, o.InStock), r.finalStock < 0, o.InStock
		atOnce, rate := timeline.Most(run.Spans), float64(len(r.waits))/r.elapsed.Seconds()
		err = o.add(run, OversellJSON{
			Guard: guard, Requests: len(r.waits), Sold: r.sold, FinalStock: r.finalStock, Stock: o.InStock,
			AtOnce: atOnce, Refused: r.refused, Processes: o.Processes, Clients: o.Clients,
			Seconds:      r.elapsed.Round(time.Millisecond).Seconds(),
			RequestsPerS: float64(int(rate*10)) / 10,
			WaitP50MS:    milliseconds(r.percentile(50)),
			WaitP99MS:    milliseconds(r.percentile(99)),
		}, guard, len(r.waits), r.sold, r.finalStock, atOnce, strconv.FormatFloat(rate, 'f', 0, 64), waitText(r.percentile(50)), waitText(r.percentile(99)))
		if err != nil {
			return err
		}
	}
	return o.finish(exact, fmt.Sprintf("with a lock exactly %d should have been sold", o.InStock), "dlock demo oversell",
		fmt.Sprintf("%d clients sent %d requests each to %d processes that sell the same stock of %d. Each request reads the stock, thinks, and then writes it. A bar is the time that a request was inside, from before the read to after the write.",
			o.Clients, o.Requests, o.Processes, o.InStock),
		fmt.Sprintf("The stock is in %s, the locks are in %s.", o.database, o.Store.Name))
}

type sales struct {
	sold, refused int             // by the answers that the clients got
	waits         []time.Duration // for the answers, sorted
	elapsed       time.Duration
	finalStock    int          // by the database
	logs          []processLog // of each process
}

// percentile returns the wait that p of 100 requests did not exceed.
func (r *sales) percentile(p int) time.Duration {
	return r.waits[min(len(r.waits)*p/100, len(r.waits)-1)]
}

// sell fills the stock and sells it with a guard. When it returns, no process runs any more.
func (o *Oversell) sell(ctx context.Context, stock *stockTable, guard Guard) (*sales, error) {
	if err := stock.restock(ctx, o.InStock); err != nil {
		return nil, err
	}
	task := shopTask{Guard: guard, Database: o.Database, Folder: o.Folder, Table: stock.table, Store: o.Store, Processes: o.Processes, Think: o.Think}
	shops, addresses, err := child.Start[string](ctx, o.Processes, shopRole, task)
	defer shops.Wait()
	if err != nil {
		return nil, err
	}
	r, err := o.runClients(ctx, addresses)
	if err != nil {
		return nil, err
	}
	for _, shop := range shops {
		shop.CloseInput()
	}
	if r.logs, err = child.ReceiveAll[processLog](shops); err != nil {
		return nil, err
	}
	r.finalStock, err = stock.read(ctx)
	return r, err
}

// runClients lets all clients send requests to the balancer, each one after the other, until
// all are answered or one has failed.
func (o *Oversell) runClients(ctx context.Context, shops []string) (*sales, error) {
	var front *balancer
	var err error
	if o.Nginx {
		front, err = startNginx(ctx, o.nginx, o.Folder, shops, o.Clients)
	} else {
		front, err = startProxy(ctx, shops, o.Clients)
	}
	if err != nil {
		return nil, err
	}
	defer front.close()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	transport := &http.Transport{
		MaxIdleConnsPerHost: o.Clients,
		DialContext:         func(ctx context.Context, _, _ string) (net.Conn, error) { return front.dial(ctx) },
	}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport}
	url := fmt.Sprintf("http://shop/stock/reduce?id=%d", productID)
	var mu sync.Mutex
	var all sync.WaitGroup
	r, start := &sales{}, time.Now()
	for range o.Clients {
		all.Go(func() {
			for range o.Requests {
				begun := time.Now()
				status, _, err := request(ctx, client, http.MethodGet, url, "", statusSold, statusSoldOut, statusRefused)
				wait := time.Since(begun)
				if err != nil {
					cancel(err)
					return
				}
				mu.Lock()
				r.waits = append(r.waits, wait)
				switch status {
				case statusSold:
					r.sold++
				case statusRefused:
					r.refused++
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	r.elapsed = time.Since(start)
	slices.Sort(r.waits)
	return r, context.Cause(ctx)
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

func stockVerdict(left, sold, stock int) string {
	return fmt.Sprintf("%s left\n%d sold of %d", strings.Replace(strconv.Itoa(left), "-", "\u2212", 1), sold, stock)
}

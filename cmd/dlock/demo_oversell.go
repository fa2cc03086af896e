package main

import (
	"context"
	"time"

	"github.com/dlock-go/dlock/cmd/dlock/internal/child"
	"github.com/dlock-go/dlock/cmd/dlock/internal/oversell"
	"github.com/dlock-go/dlock/cmd/dlock/internal/supervise"
	"github.com/spf13/cobra"
)

// oversellFlags are the flags of demo oversell.
type oversellFlags struct {
	database  string // URL
	nginx     bool
	processes int
	clients   int
	requests  int // of each client
	stock     int
	think     time.Duration
	json      bool
	html, svg string // files
}

const oversellHelp = `Sell a stock of 40 with several processes, and see whether more is sold than was
there.

Each process is an HTTP service, GET /stock/reduce?id=1. It reads the stock from
the database, looks whether there is any left, thinks for a while, and then runs
UPDATE ... SET stock = stock - 1. About the last ones it thinks ten times as long,
so that the race is not lost now and then, but each time. A proxy sends requests
to the processes in turn. 50 clients send 10 requests each, four times, with
another guard around all of this:

  none     no lock: many requests read the same stock, and all of them sell it
  local    a mutex in each process, which keeps out the others of its process only
  dlock    a lock in the store: one at a time, in all processes
  fenced   the same, and the row refuses a token that is older than the last it
           has seen, so that a holder that was paused for too long sells nothing

SOLD is what clients were told, FINAL STOCK what the database says, AT ONCE how many
requests were between reading and writing at the same time, and WAIT how long a
client waited for its answer (the median, and what 99 of 100 did not exceed).

The stock is in an SQLite file; with --db in a table with a name of its own, which
is removed at the end. The locks are in --store or $` + storeVariable + `, or else in
another SQLite file.

With --json each run is one JSON object on a line of its own:
  {"guard":"local","requests":500,"sold":44,"final_stock":-4,"stock":40,
   "at_once":5,"refused":0,"processes":5,"clients":50,"seconds":1.83,
   "requests_per_s":273.2,"wait_p50_ms":54.3,"wait_p99_ms":980.1}

The exit status is 0 if dlock and fenced have sold exactly what was there, 1 if
not, 64 for wrong usage, and 69, 77 or 78 if the store or the database
cannot be used.`

func (a *app) oversellCommand() *cobra.Command {
	var flags oversellFlags
	cmd := &cobra.Command{
		Use:   "oversell",
		Short: "Sell the same stock in several processes",
		Long:  oversellHelp,
		Example: `  dlock demo oversell
  dlock demo oversell --html oversell.html            # and see who was in at once
  dlock demo oversell --store redis://localhost --db mysql://user:pass@localhost/shop
  dlock demo oversell --nginx --processes 8           # with a real nginx
  dlock demo oversell --json | jq -r '[.guard, .final_stock] | @tsv'`,
		Args: exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := flags.check(); err != nil {
				return err
			}
			return a.stage(cmd.Context(), func(ctx context.Context, folder string) error {
				return a.oversell(ctx, &flags, folder)
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&flags.database, "db", "", "`URL` of the shop's database: mysql://, mariadb:// or postgres://; default: an SQLite file")
	f.BoolVar(&flags.nginx, "nginx", false, "balance with the nginx that is installed, not with the built-in proxy")
	f.IntVar(&flags.processes, "processes", 5, "`N` processes of the service")
	f.IntVar(&flags.clients, "clients", 50, "`N` clients at once")
	f.IntVar(&flags.requests, "requests", 10, "`N` requests of each client")
	f.IntVar(&flags.stock, "stock", 40, "`N` in stock; fewer than there are requests")
	f.DurationVar(&flags.think, "think", 20*time.Millisecond, "`DUR` from reading to writing; the last ones take longer")
	f.BoolVar(&flags.json, "json", false, "one JSON object a line")
	f.StringVar(&flags.html, "html", "", "write a page with timelines to `FILE`")
	f.StringVar(&flags.svg, "svg", "", "write a picture of all runs to `FILE`")
	return cmd
}

// Limits of the flags: what a machine can do.
const (
	maxProcesses = 50
	maxClients   = 1000
	maxRequests  = 100_000 // in all
)

// check refuses flags that make no sense, before anything is started.
func (f *oversellFlags) check() error {
	switch {
	case f.processes < 1 || f.processes > maxProcesses:
		return usagef("--processes %d is outside 1 to %d", f.processes, maxProcesses)
	case f.clients < 1 || f.clients > maxClients:
		return usagef("--clients %d is outside 1 to %d", f.clients, maxClients)
	case f.requests < 1 || f.requests > maxRequests/f.clients:
		return usagef("--requests %d is outside 1 to %d for %d clients", f.requests, maxRequests/f.clients, f.clients)
	case f.stock < 1 || f.stock >= f.clients*f.requests:
		return usagef("--stock %d is outside 1 to %d: with %d requests no more could be sold than is there",
			f.stock, f.clients*f.requests-1, f.clients*f.requests)
	case f.think < 0:
		return usagef("--think %v is negative", f.think)
	}
	if f.database != "" {
		if _, err := demoTarget(f.database); err != nil {
			return err
		}
	}
	return nil
}

// oversell is the demo.
func (a *app) oversell(ctx context.Context, flags *oversellFlags, folder string) error {
	self, err := supervise.Executable()
	if err != nil {
		return err
	}
	show := &oversellShow{app: a, flags: flags}
	if err := show.files.open(flags.html, flags.svg); err != nil {
		return err
	}
	defer show.files.close()
	order := shopOrder{Database: flags.database, Folder: folder, Table: oversell.NewTable(), Processes: flags.processes, Think: flags.think}
	scenario := &oversell.Scenario{
		Processes: flags.processes, Clients: flags.clients, Requests: flags.requests, InStock: flags.stock,
		NginxAttributes: supervise.ChildAttributes(), Folder: folder,
		Hire: func(ctx context.Context, guard oversell.Guard) (*child.Process, error) {
			order := order
			order.Guard = guard
			return child.Start(ctx, self, shopName, order)
		},
	}
	if flags.nginx {
		if scenario.Nginx, err = oversell.FindNginx(); err != nil {
			return failf(exitUnavailable, "%w", err)
		}
	}
	if order.Store, show.store, err = a.chooseDemoStore(ctx, folder, oversell.LockName); err != nil {
		return err
	}
	return a.withStock(ctx, &order, func(stock *oversell.Stock, database string) error {
		scenario.Stock, show.database = stock, database
		return show.run(ctx, scenario)
	})
}

// withStock creates the table of the shops, calls use, and drops the table.
func (a *app) withStock(ctx context.Context, order *shopOrder, use func(stock *oversell.Stock, database string) error) error {
	db, err := openDemoDatabase(ctx, order.Database, order.Folder, 1)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	database := a.secrets.clean(db.display)
	stock, err := oversell.OpenStock(db.DB, db.dialect, order.Table)
	if err != nil {
		return err
	}
	if err := stock.Create(ctx); err != nil {
		return failf(exitUnavailable, "cannot use %s: %w", database, err)
	}
	defer func() { // also when somebody wants it to stop
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), openLimit)
		defer cancel()
		if err := stock.Drop(ctx); err != nil {
			a.say("remove the table by hand: %v", err)
		}
	}()
	return use(stock, database)
}

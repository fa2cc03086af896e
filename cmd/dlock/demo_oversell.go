package main

import (
	"time"

	"github.com/dlock-go/dlock/cmd/dlock/internal/demo"
	"github.com/spf13/cobra"
)

const oversellHelp = `Sell a stock of 40 with several processes, and see whether more is sold than was
there.

Each process is an HTTP service, GET /stock/reduce?id=1. It reads the stock from
the database, checks whether any is left, thinks for a while, and then runs
UPDATE ... SET stock = stock - 1. About the last ones it thinks ten times as long,
so that the race is lost in every run. A proxy sends requests to the processes in
turn. 50 clients send 10 requests each, four times, with a different guard around
all of this:

  none     no lock: many requests read the same stock, and all of them sell it
  local    a mutex in each process, which excludes requests of the same process only
  dlock    a lock in the store: one request at a time, in all processes
  fenced   the same, and the row refuses a token that is older than the last it
           has seen, so that a holder that was paused for too long sells nothing

SOLD is what the answers to the clients say, FINAL STOCK what the database says, AT
ONCE how many requests were between reading and writing at the same time, and WAIT
how long a client waited for its answer (the median, and the 99th percentile).

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
	var d demo.Oversell
	cmd := &cobra.Command{
		Use:   "oversell",
		Short: "Sell the same stock in several processes",
		Long:  oversellHelp,
		Example: `  dlock demo oversell
  dlock demo oversell --html oversell.html            # and see which requests overlapped
  dlock demo oversell --store redis://localhost --db mysql://user:pass@localhost/shop
  dlock demo oversell --nginx --processes 8           # with a real nginx
  dlock demo oversell --json | jq -r '[.guard, .final_stock] | @tsv'`,
	}
	a.prepareDemo(cmd, &d, &d.Stage, demo.OversellLock, "all")
	addDatabaseFlag(cmd, &d.Stage)
	f := cmd.Flags()
	f.BoolVar(&d.Nginx, "nginx", false, "balance with the nginx that is installed, not with the built-in proxy")
	f.IntVar(&d.Processes, "processes", 5, "`N` processes of the service")
	f.IntVar(&d.Clients, "clients", 50, "`N` clients at once")
	f.IntVar(&d.Requests, "requests", 10, "`N` requests of each client")
	f.IntVar(&d.InStock, "stock", 40, "`N` in stock; fewer than there are requests")
	f.DurationVar(&d.Think, "think", 20*time.Millisecond, "`DUR` from reading to writing; the last ones take longer")
	return cmd
}

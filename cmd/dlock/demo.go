package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/cmd/dlock/internal/demo"
	"github.com/dlock-go/dlock/cmd/dlock/internal/stores"
	"github.com/dlock-go/dlock/cmd/dlock/internal/terminal"
	"github.com/spf13/cobra"
)

func (a *app) demoCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "demo oversell|token|pause",
		Short: "See what goes wrong without a lock, and right with one",
		Long: `Run a scenario that goes wrong without a lock, with real processes and real
servers, and then once more with one.

  oversell   several processes sell the same stock
  token      several processes fetch an access token, and each new one makes the
             last one invalid
  pause      a holder is stopped for longer than its lock lasts, and goes on: this
             needs more than a lock

Nothing has to be installed. Everything that a demo creates is removed when it ends,
also after Ctrl-C.`,
		Example: `  dlock demo oversell
  dlock demo oversell --html oversell.html --store redis://localhost
  dlock demo token
  dlock demo pause`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usagef("there is no demo %s: there are oversell, token and pause", terminal.Quote(args[0]))
			}
			return usagef("name a demo: there are oversell, token and pause")
		},
	}
	cmd.AddCommand(a.oversellCommand(), a.tokenCommand(), a.pauseCommand())
	return cmd
}

type scenario interface {
	Check() error
	Run(ctx context.Context) error
}

// prepareDemo adds what the commands of all demos share.
func (a *app) prepareDemo(cmd *cobra.Command, d scenario, s *demo.Stage, lock, runs string) {
	cmd.Args = arguments(0, 0, "no arguments")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return a.runDemo(cmd, d, s, lock) }
	f := cmd.Flags()
	f.BoolVar(&s.JSON, "json", false, "one JSON object a line")
	f.StringVar(&s.HTML, "html", "", "write a page with timelines to `FILE`")
	f.StringVar(&s.SVG, "svg", "", "write a picture of "+runs+" runs to `FILE`")
}

func addDatabaseFlag(cmd *cobra.Command, s *demo.Stage) {
	cmd.Flags().StringVar(&s.Database, "db", "", "`URL` of the shop's database: mysql://, mariadb:// or postgres://; default: an SQLite file")
}

// runDemo runs a demo in a temporary folder. A stop signal ends the context of the demo.
func (a *app) runDemo(cmd *cobra.Command, d scenario, stage *demo.Stage, lock string) error {
	if cmd.Flags().Changed("db") && stage.Database == "" {
		return usagef("--db is empty: leave it out for an SQLite file")
	}
	if err := d.Check(); err != nil {
		return classify(err)
	}
	ctx, interrupt := context.WithCancelCause(cmd.Context())
	defer interrupt(nil)
	signals := make(chan os.Signal, 1)
	notifyStop(signals)
	defer signal.Stop(signals)
	signal.Ignore(syscall.SIGPIPE) // a closed stdout is an error, and the demo cleans up
	defer signal.Reset(syscall.SIGPIPE)
	go func() {
		select {
		case s := <-signals:
			interrupt(interruptedError{signal: s})
			signal.Stop(signals) // a second signal ends dlock even if a server does not answer
		case <-ctx.Done():
		}
	}()
	folder, err := os.MkdirTemp("", "dlock-demo-")
	if err != nil {
		return failf(exitUnavailable, "cannot make a temporary folder: %w", err)
	}
	stage.Stdout, stage.Stderr, stage.Folder = a.stdout, a.stderr, folder
	defer stage.Close()
	if err = stage.Open(); err == nil {
		stage.Store, err = a.chooseDemoStore(ctx, folder, lock)
	}
	if err == nil {
		err = d.Run(ctx)
	}
	if interrupted := context.Cause(ctx); interrupted != nil {
		err = interrupted // other errors follow from it
	}
	if left := os.RemoveAll(folder); left != nil {
		err = errors.Join(err, fmt.Errorf("could not remove the temporary folder: %w", left))
	}
	return classify(err)
}

// chooseDemoStore returns the store of this command line, or else an SQLite file in folder.
// It tries the store with a lock before the demo starts.
func (a *app) chooseDemoStore(ctx context.Context, folder, lock string) (demo.Store, error) {
	choice, err := a.chooseStore()
	if err == nil && choice.url == "" {
		return demo.Store{File: filepath.Join(folder, "locks.db"), Name: "an SQLite file"}, stores.CheckScheme(stores.Split(""))
	}
	if err != nil {
		return demo.Store{}, err
	}
	chosen := demo.Store{URL: choice.url}
	err = a.withClient(ctx, "", func(client *dlock.Client, store *stores.Store) error {
		chosen.Name, chosen.MinTTL = store.URL, client.Traits().MinTTL
		lease, err := client.TryLock(ctx, lock)
		if errors.Is(err, dlock.ErrHeld) { // by another demo
			return nil
		}
		if err != nil {
			return err
		}
		return lease.Unlock(ctx)
	})
	return chosen, err
}

func (a *app) oversellCommand() *cobra.Command {
	var d demo.Oversell
	cmd := &cobra.Command{
		Use:   "oversell",
		Short: "Sell the same stock in several processes",
		Long: `Sell a stock of 40 with several processes, and see whether more is sold than was
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
cannot be used.`,
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
	addDuration(f, &d.Think, "think", "", 20*time.Millisecond, "`DUR` from reading to writing; the last ones take longer")
	return cmd
}

func (a *app) tokenCommand() *cobra.Command {
	var d demo.Token
	cmd := &cobra.Command{
		Use:   "token",
		Short: "Fetch a token that makes the last one invalid",
		Long: `Let ten processes send messages to a service that wants an access token, of which
only the last that was fetched is valid.

The processes share the token in a file. A process that finds none there, or one that
was refused, fetches a new token and writes it. Without a lock many processes find
none at the same time, and each token is made invalid by the next one. With a lock
around reading and fetching, one process fetches, and the others find its token in
the file. The lock is in --store or $` + storeVariable + `, or else in an SQLite file.

With --json each run is one JSON object on a line of its own:
  {"guard":"dlock","processes":10,"calls":100,"failed":0,"fetches":1,"seconds":0.71}

The exit status is 0 if with the lock no call failed and one token was fetched, 1 if
not, 64 for wrong usage, and 69, 77 or 78 if the store cannot be used.`,
		Example: `  dlock demo token
  dlock demo token --html token.html                  # and see which process fetched when
  dlock demo token --store redis://localhost --processes 20
  dlock demo token --json | jq '.failed'`,
	}
	a.prepareDemo(cmd, &d, &d.Stage, demo.TokenLock, "both")
	f := cmd.Flags()
	f.IntVar(&d.Processes, "processes", 10, "`N` processes that need a token")
	f.IntVar(&d.Calls, "calls", 10, "`N` calls of each process")
	return cmd
}

func (a *app) pauseCommand() *cobra.Command {
	var d demo.Pause
	cmd := &cobra.Command{
		Use:   "pause",
		Short: "Stop a holder for longer than its lock lasts",
		Long: `Stop a process that holds a lock for longer than the lock lasts, and see what it
does when it goes on.

One is in stock. Process 1 acquires the lock, reads the stock, thinks, checks that it
still has the lock, and is stopped just before it writes, with SIGSTOP: a pause of the
virtual machine, a slow disk or a long garbage collection have the same effect. Its
lock expires. Process 2 acquires it, finds one in stock and sells it. Then process 1
goes on where it was, and writes. This runs twice:

  dlock    the lock alone: both have sold the last one. No lock that expires can
           prevent that, because the pause can follow the last check of the lock
  fenced   the row remembers the largest token that wrote it, and refuses the write
           of process 1, whose token is smaller (package fence, DLOCK_TOKEN)

The stock is in an SQLite file; with --db in a table with a name of its own, which
is removed at the end. The lock is in --store or $` + storeVariable + `, or else in
another SQLite file.

With --json each run is one JSON object on a line of its own:
  {"guard":"dlock","stock":1,"sold":2,"final_stock":-1,"refused":0,"tokens":[1,2],
   "ttl_ms":2000,"paused_ms":2071}

The exit status is 0 if fenced has sold exactly what was there, 1 if not, 64 for wrong
usage, and 69, 77 or 78 if the store or the database cannot be used.`,
		Example: `  dlock demo pause
  dlock demo pause --html pause.html                  # and see it on a timeline
  dlock demo pause --store redis://localhost --ttl 5
  dlock demo pause --json | jq -r '[.guard, .final_stock] | @tsv'`,
	}
	a.prepareDemo(cmd, &d, &d.Stage, demo.PauseLock, "both")
	addDatabaseFlag(cmd, &d.Stage)
	addDuration(cmd.Flags(), &d.TTL, "ttl", "", 2*time.Second, "`DUR` after which the lock of the stopped process expires")
	return cmd
}

package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"

	"github.com/dlock-go/dlock/cmd/dlock/internal/child"
	"github.com/dlock-go/dlock/cmd/dlock/internal/supervise"
	"github.com/dlock-go/dlock/cmd/dlock/internal/terminal"
	"github.com/dlock-go/dlock/cmd/dlock/internal/tokens"
	"github.com/spf13/cobra"
)

// tokenFlags are the flags of demo token.
type tokenFlags struct {
	processes int
	calls     int // of each process
	json      bool
	html, svg string // files
}

const tokenHelp = `Let ten processes send messages to a service that wants an access token, of which
only the last that was fetched is valid.

The processes leave the token for each other in a file. Who finds none there, or
one that was refused, fetches a new one and leaves it. Without a lock many find
none at the same time, and each one's token is made invalid by the next one's. With
a lock around looking and fetching one process fetches, and the others find what it
has left. The lock is in --store or $` + storeVariable + `, or else in an SQLite file.

With --json each run is one JSON object on a line of its own:
  {"guard":"dlock","processes":10,"calls":100,"failed":0,"fetches":1,"seconds":0.71}

The exit status is 0 if with the lock no call failed and one token was fetched, 1 if
not, 64 for wrong usage, and 69, 77 or 78 if the store cannot be used.`

func (a *app) tokenCommand() *cobra.Command {
	var flags tokenFlags
	cmd := &cobra.Command{
		Use:   "token",
		Short: "Fetch a token that makes the last one invalid",
		Long:  tokenHelp,
		Example: `  dlock demo token
  dlock demo token --html token.html                  # and see who fetched when
  dlock demo token --store redis://localhost --processes 20
  dlock demo token --json | jq '.failed'`,
		Args: exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := flags.check(); err != nil {
				return err
			}
			return a.stage(cmd.Context(), func(ctx context.Context, folder string) error {
				return a.token(ctx, &flags, folder)
			})
		},
	}
	f := cmd.Flags()
	f.IntVar(&flags.processes, "processes", 10, "`N` processes that need a token")
	f.IntVar(&flags.calls, "calls", 10, "`N` calls of each process")
	f.BoolVar(&flags.json, "json", false, "one JSON object a line")
	f.StringVar(&flags.html, "html", "", "write a page with timelines to `FILE`")
	f.StringVar(&flags.svg, "svg", "", "write a picture of both runs to `FILE`")
	return cmd
}

func (f *tokenFlags) check() error {
	const maxCalls = 1000
	switch {
	case f.processes < 1 || f.processes > maxProcesses:
		return usagef("--processes %d is outside 1 to %d", f.processes, maxProcesses)
	case f.calls < 1 || f.calls > maxCalls:
		return usagef("--calls %d is outside 1 to %d", f.calls, maxCalls)
	}
	return nil
}

// tokenJSON is one run in the output of --json.
type tokenJSON struct {
	Guard     string  `json:"guard"`
	Processes int     `json:"processes"`
	Calls     int     `json:"calls"`
	Failed    int     `json:"failed"`
	Fetches   int     `json:"fetches"`
	Seconds   float64 `json:"seconds"`
}

// token is the demo.
func (a *app) token(ctx context.Context, flags *tokenFlags, folder string) error {
	self, err := supervise.Executable()
	if err != nil {
		return err
	}
	var files drawings
	if err := files.open(flags.html, flags.svg); err != nil {
		return err
	}
	defer files.close()
	store, display, err := a.chooseDemoStore(ctx, folder, tokens.LockName)
	if err != nil {
		return err
	}
	if !flags.json {
		a.note("%d processes, %d calls each; the locks are in %s", flags.processes, flags.calls, display)
	}
	t := terminal.Table{Columns: tokenColumns}
	page := tokenPage(flags, display)
	good := true
	bar := terminal.NewProgress(a.stderr)
	for _, guard := range []string{"none", "dlock"} {
		order := userOrder{File: filepath.Join(folder, "token-"+guard), Calls: flags.calls}
		if guard == "dlock" {
			order.Store = &store
		}
		scenario := &tokens.Scenario{Processes: flags.processes, Hire: order.hire(self), Progress: bar.Step}
		bar.Begin(guard, flags.processes*flags.calls, "failed")
		result, err := scenario.Run(ctx)
		if err != nil {
			bar.End("")
			return err
		}
		bar.End(fmt.Sprintf("%d of %d calls failed, tokens fetched: %d", result.Failed, result.Calls, result.Fetches))
		if guard == "dlock" {
			good = result.Failed == 0 && result.Fetches == 1
		}
		row := []string{guard, strconv.Itoa(flags.processes), strconv.Itoa(result.Calls), strconv.Itoa(result.Failed), strconv.Itoa(result.Fetches)}
		t.Add(row...)
		page.Table = append(page.Table, row)
		page.Runs = append(page.Runs, tokenTimeline(guard, result))
		if !flags.json {
			continue
		}
		if err := printJSON(a.stdout, tokenJSON{guard, flags.processes, result.Calls, result.Failed, result.Fetches,
			float64(result.Elapsed.Milliseconds()) / 1000}); err != nil {
			return err
		}
	}
	if !flags.json {
		if err := t.Print(a.stdout, terminal.PainterFor(a.stdout)); err != nil {
			return err
		}
	}
	if err := files.write(tokenColumns, page); err != nil {
		return err
	}
	if !good {
		return failf(exitNo, "with a lock no call should have failed, and one token should have been fetched")
	}
	return nil
}

// userName is the argv[0] of a process that needs a token.
const userName = "dlock-demo-user"

// userOrder is what such a process is told.
type userOrder struct {
	Service string // URL
	File    string
	Calls   int
	Store   *demoStore // nil: without a lock
}

func (o userOrder) hire(self string) func(ctx context.Context, service string) (*child.Process, error) {
	return func(ctx context.Context, service string) (*child.Process, error) {
		o.Service = service
		return child.Start(ctx, self, userName, o)
	}
}

// userProcess is the whole program of such a process.
func userProcess(parent *child.Parent) error {
	var order userOrder
	if err := parent.Hear(&order); err != nil {
		return err
	}
	user := tokens.User{Service: order.Service, File: order.File, Calls: order.Calls}
	if order.Store != nil {
		client, closeAll, err := order.Store.client(parent.Context)
		if err != nil {
			return err
		}
		defer closeAll()
		user.Client = client
	}
	if err := parent.Tell(true); err != nil {
		return err
	}
	var begin bool
	if err := parent.Hear(&begin); err != nil {
		return err
	}
	if err := user.Work(parent.Context); err != nil {
		return err
	}
	return parent.Tell(user.Log)
}

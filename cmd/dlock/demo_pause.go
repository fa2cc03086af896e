package main

import (
	"time"

	"github.com/dlock-go/dlock/cmd/dlock/internal/demo"
	"github.com/spf13/cobra"
)

const pauseHelp = `Stop a process that holds a lock for longer than the lock lasts, and see what it
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
usage, and 69, 77 or 78 if the store or the database cannot be used.`

func (a *app) pauseCommand() *cobra.Command {
	var d demo.Pause
	cmd := &cobra.Command{
		Use:   "pause",
		Short: "Stop a holder for longer than its lock lasts",
		Long:  pauseHelp,
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

package main

import (
	"github.com/dlock-go/dlock/cmd/dlock/internal/demo"
	"github.com/spf13/cobra"
)

const tokenHelp = `Let ten processes send messages to a service that wants an access token, of which
only the last that was fetched is valid.

The processes share the token in a file. A process that finds none there, or one that
was refused, fetches a new token and writes it. Without a lock many processes find
none at the same time, and each token is made invalid by the next one. With a lock
around reading and fetching, one process fetches, and the others find its token in
the file. The lock is in --store or $` + storeVariable + `, or else in an SQLite file.

With --json each run is one JSON object on a line of its own:
  {"guard":"dlock","processes":10,"calls":100,"failed":0,"fetches":1,"seconds":0.71}

The exit status is 0 if with the lock no call failed and one token was fetched, 1 if
not, 64 for wrong usage, and 69, 77 or 78 if the store cannot be used.`

func (a *app) tokenCommand() *cobra.Command {
	var d demo.Token
	cmd := &cobra.Command{
		Use:   "token",
		Short: "Fetch a token that makes the last one invalid",
		Long:  tokenHelp,
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

package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/cmd/dlock/internal/stores"
	"github.com/dlock-go/dlock/cmd/dlock/internal/terminal"
	"github.com/dlock-go/dlock/driver"
	"github.com/spf13/cobra"
)

func (a *app) showCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "show NAME",
		Short: "Show one lock",
		Long: `Show the holder of NAME, or all holders if they share it.

The exit status is 0 if the lock is held and 1 if it is free. Any other status is no
answer: the store cannot be reached, for example. The answer is about the moment of
asking and may be old when it arrives: to do something only if a lock is free,
use "dlock exec -n".

With --json it prints one JSON object, {"name":...,"held":false} or the fields of
"dlock ls --json" with "held":true; if the lock has several holders, one object a line
for each of them.`,
		Example: `  dlock show nightly
  dlock show nightly --json | jq .holder.host`,
		ValidArgsFunction: a.completeNames,
		Args:              arguments(1, 1, "one NAME"),
		RunE: func(cmd *cobra.Command, args []string) error {
			name := args[0]
			if err := driver.CheckName(name); err != nil {
				return classify(err)
			}
			return a.withClient(cmd.Context(), "", func(client *dlock.Client, _ *stores.Store) error {
				var holders []driver.Info
				err := stores.RetryIfSlow(cmd.Context(), func() (err error) {
					holders, err = holdersOf(cmd.Context(), client, name)
					return err
				})
				switch {
				case err != nil:
					return err
				case asJSON:
					err = a.showJSON(name, holders)
				case len(holders) > 0:
					err = a.showText(holders)
				default:
					err = terminal.Print(a.stdout, terminal.Quote(name)+" is free\n")
				}
				if err == nil && len(holders) == 0 {
					err = exitWith(exitNo)
				}
				return err
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON object for each holder")
	return cmd
}

func (a *app) showJSON(name string, holders []driver.Info) error {
	type shown struct {
		Name string `json:"name"`
		*lockJSON
		Held bool `json:"held"`
	}
	if len(holders) == 0 {
		return terminal.PrintJSON(a.stdout, shown{Name: name})
	}
	for _, info := range holders {
		if err := terminal.PrintJSON(a.stdout, shown{name, describeLock(info), true}); err != nil {
			return err
		}
	}
	return nil
}

func (a *app) showText(holders []driver.Info) error {
	p := terminal.PainterFor(a.stdout)
	var b strings.Builder
	row := func(title, value string) {
		fmt.Fprintf(&b, "%s %s\n", p.Paint(terminal.Bold, fmt.Sprintf("%-10s", title)), value)
	}
	row("name", p.Paint(terminal.Green, terminal.Quote(holders[0].Name)))
	row("mode", holders[0].Mode.String())
	row("waiters", strconv.Itoa(holders[0].Waiters))
	for i, info := range holders {
		if i > 0 {
			b.WriteString("\n")
		}
		row("token", strconv.FormatUint(info.Token, 10))
		row("holder", info.Holder.String())
		if !info.Since.IsZero() {
			row("since", sinceText(info.Since, time.Now()))
		}
		row("remaining", remainingText(info.Remaining)+" unless renewed")
	}
	return terminal.Print(a.stdout, b.String())
}

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
		Long: `Show the holder of NAME.

The exit status is 0 if the lock is held and 1 if it is free, so that scripts can
ask with "if dlock show NAME >/dev/null". The answer is about the moment of
asking and may be old when it arrives: to do something only if a lock is free,
use "dlock exec -n".

With --json it prints one JSON object, {"name":...,"held":false} or the fields of
"dlock ls --json" with "held":true.`,
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
				var info driver.Info
				var held bool
				err := stores.Patiently(cmd.Context(), func() (err error) {
					info, held, err = client.Find(cmd.Context(), name)
					return err
				})
				switch {
				case err != nil:
					return err
				case asJSON:
					err = a.showJSON(name, info, held)
				case held:
					err = a.showText(info)
				default:
					err = terminal.Print(a.stdout, terminal.Quote(name)+" is free\n")
				}
				if err == nil && !held {
					err = exitWith(exitNo)
				}
				return err
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON object")
	return cmd
}

func (a *app) showJSON(name string, info driver.Info, held bool) error {
	shown := struct {
		Name string `json:"name"`
		*lockJSON
		Held bool `json:"held"`
	}{Name: name, Held: held}
	if held {
		shown.lockJSON = describeLock(info)
	}
	return terminal.PrintJSON(a.stdout, shown)
}

func (a *app) showText(info driver.Info) error {
	p := terminal.PainterFor(a.stdout)
	var b strings.Builder
	row := func(title, value string) {
		fmt.Fprintf(&b, "%s %s\n", p.Paint(terminal.Bold, fmt.Sprintf("%-10s", title)), value)
	}
	row("name", p.Paint(terminal.Green, terminal.Quote(info.Name)))
	row("token", strconv.FormatUint(info.Token, 10))
	row("holder", info.Holder.String())
	if !info.Since.IsZero() {
		row("since", sinceText(info.Since, time.Now()))
	}
	row("remaining", remainingText(info.Remaining)+" unless renewed")
	row("waiters", strconv.Itoa(info.Waiters))
	return terminal.Print(a.stdout, b.String())
}

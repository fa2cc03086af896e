package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/cmd/dlock/internal/stores"
	"github.com/dlock-go/dlock/cmd/dlock/internal/terminal"
	"github.com/dlock-go/dlock/driver"
	"github.com/spf13/cobra"
)

func (a *app) listCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "ls [PREFIX]",
		Short: "List the locks that are held",
		Long: `List the locks that are held, sorted by name; with PREFIX those whose names
start with it. A lock that several holders have at the same time has one line for each
of them. MODE is exclusive, shared, or the limit of a semaphore.

WAITERS counts the waiters that the store knows: every fair waiter, and processes
that have waited for a while. Names with spaces and invisible characters are
quoted. At a terminal long names and holders are cut to the width of a line, and
columns on the right that do not fit are left out.

With --json every holder is one JSON object on a line of its own:
  {"name":"nightly","token":7,"mode":"exclusive","limit":1,
   "holder":{"host":"web-1","pid":4242,"program":"backup.sh","note":""},
   "since":"2026-01-02T03:04:05.678Z","remaining_ms":28114,"waiters":0}
The mode is exclusive, shared or limit; the limit is null if it is shared. Tokens may
be larger than 2^53: jq before 1.7 rounds them.

When nothing is held it prints nothing and the exit status is 0.`,
		Example: `  dlock ls
  dlock ls orders/
  dlock ls --json | jq -r 'select(.waiters > 0) | .name'`,
		ValidArgsFunction: a.completeNames,
		Args:              arguments(0, 1, "at most one PREFIX"),
		RunE: func(cmd *cobra.Command, args []string) error {
			prefix := strings.Join(args, "")
			return a.withClient(cmd.Context(), "", func(client *dlock.Client, store *stores.Store) error {
				if _, lists := store.Driver.(driver.Lister); lists {
					if err := stores.Ping(cmd.Context(), client); err != nil {
						return err
					}
				}
				infos, err := locksOf(cmd.Context(), client, prefix)
				switch {
				case errors.Is(err, dlock.ErrUnsupported):
					return stores.URLErrorf("the locks of %s cannot be listed: %w", store.URL, err)
				case err != nil:
					return err
				case !asJSON:
					return a.listTable(infos, store.URL)
				}
				for _, info := range infos {
					if err := terminal.PrintJSON(a.stdout, describeLock(info)); err != nil {
						return err
					}
				}
				return nil
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON object a line")
	return cmd
}

func (a *app) listTable(infos []driver.Info, store string) error {
	if len(infos) == 0 {
		if terminal.Is(a.stderr) {
			fmt.Fprintf(a.stderr, "No lock is held. The store is %s.\n", terminal.Escape(store))
		}
		return nil
	}
	t := terminal.Table{Width: terminal.Width(a.stdout), Columns: []terminal.Column{
		{Title: "NAME", Style: terminal.Green, Shrink: 1},
		{Title: "MODE"},
		{Title: "TOKEN", Right: true},
		{Title: "HOLDER", Shrink: 2},
		{Title: "SINCE", Style: terminal.Faint},
		{Title: "REMAINING", Right: true},
		{Title: "WAITERS", Right: true},
	}}
	now := time.Now()
	for _, info := range infos {
		t.Add(terminal.Quote(info.Name), info.Mode.String(), strconv.FormatUint(info.Token, 10), info.Holder.String(),
			sinceText(info.Since, now), remainingText(info.Remaining), strconv.Itoa(info.Waiters))
	}
	return t.Print(a.stdout, terminal.PainterFor(a.stdout))
}

// locksOf returns the locks that are held, by name, and the holders of a name by token.
func locksOf(ctx context.Context, client *dlock.Client, prefix string) (infos []driver.Info, err error) {
	for info, err := range client.Locks(ctx, prefix) {
		if err != nil {
			return nil, err
		}
		infos = append(infos, info)
	}
	slices.SortFunc(infos, func(a, b driver.Info) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), cmp.Compare(a.Token, b.Token))
	})
	return infos, nil
}

// holdersOf returns all holders of name, by token.
func holdersOf(ctx context.Context, client *dlock.Client, name string) ([]driver.Info, error) {
	first, held, err := client.Find(ctx, name)
	if err != nil || !held {
		return nil, err
	}
	if first.Mode == (driver.Mode{}) {
		return []driver.Info{first}, nil
	}
	holders, err := locksOf(ctx, client, name)
	return slices.DeleteFunc(holders, func(info driver.Info) bool { return info.Name != name }), err
}

// lockJSON is one holder in the output of ls --json and show --json.
type lockJSON struct {
	Name        string     `json:"name"`
	Token       uint64     `json:"token"`
	Mode        string     `json:"mode"`
	Limit       *int       `json:"limit"` // null if there is none
	Holder      holderJSON `json:"holder"`
	Since       *time.Time `json:"since"` // null if the store does not know
	RemainingMS int64      `json:"remaining_ms"`
	Waiters     int        `json:"waiters"`
}

// holderJSON always has all fields, so that scripts need not check for them.
type holderJSON struct {
	Host    string `json:"host"`
	PID     int    `json:"pid"`
	Program string `json:"program"`
	Note    string `json:"note"`
}

func describeLock(info driver.Info) *lockJSON {
	lock := &lockJSON{
		Name:        info.Name,
		Mode:        "exclusive",
		Token:       info.Token,
		Holder:      holderJSON(info.Holder),
		RemainingMS: info.Remaining.Milliseconds(),
		Waiters:     info.Waiters,
	}
	limit := max(1, info.Mode.Limit)
	switch {
	case info.Mode.Limit > 0:
		lock.Mode, lock.Limit = "limit", &limit
	case info.Mode.Shared:
		lock.Mode = "shared"
	default:
		lock.Limit = &limit
	}
	if !info.Since.IsZero() {
		since := info.Since.UTC()
		lock.Since = &since
	}
	return lock
}

// sinceText shows the time of day, with the date if it is not today.
func sinceText(since, now time.Time) string {
	if since.IsZero() {
		return "-"
	}
	since = since.Local()
	if since.Format(time.DateOnly) == now.Format(time.DateOnly) {
		return since.Format(time.TimeOnly)
	}
	return since.Format(time.DateTime)
}

func remainingText(d time.Duration) string {
	if d >= time.Second {
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Millisecond).String()
}

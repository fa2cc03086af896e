package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/cmd/dlock/internal/stores"
	"github.com/dlock-go/dlock/cmd/dlock/internal/terminal"
	"github.com/dlock-go/dlock/driver"
	"github.com/spf13/cobra"
)

type diagnosisJSON struct {
	URL      string           `json:"url"`
	Traits   traitsJSON       `json:"traits"`
	Findings []driver.Finding `json:"findings"`
	OK       bool             `json:"ok"` // no finding is a problem
}

type traitsJSON struct {
	Store            string         `json:"store"`
	Fencing          driver.Fencing `json:"fencing"`
	Fair             bool           `json:"fair"`
	MinTTLMS         int64          `json:"min_ttl_ms"`
	MaxTTLMS         int64          `json:"max_ttl_ms"` // 0: no limit
	GranularityMS    int64          `json:"granularity_ms"`
	OneMachine       bool           `json:"one_machine"` // processes of other machines are not excluded
	SurvivesRestart  bool           `json:"survives_restart"`
	SurvivesFailover bool           `json:"survives_failover"`
}

func (a *app) doctorCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Report what this store, as configured, can promise",
		Long: `Report what the store can promise, and check how it is configured.

The exit status is 0 if there is no problem (warnings are allowed), 1 if there is
one, 69 if the store cannot be reached, 77 if it refuses the user, and 78 if it
cannot keep locks as it is.`,
		Example: `  dlock doctor
  set -o pipefail; dlock doctor --json | jq '.findings[] | select(.level != "ok")'`,
		Args: arguments(0, 0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withClient(cmd.Context(), "", func(client *dlock.Client, store *stores.Store) error {
				return a.diagnose(cmd.Context(), client, store, asJSON)
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON object")
	return cmd
}

func (a *app) diagnose(ctx context.Context, client *dlock.Client, store *stores.Store, asJSON bool) error {
	if err := stores.Ping(ctx, client); err != nil {
		return err
	}
	findings, err := client.Diagnose(ctx)
	if err != nil && !errors.Is(err, dlock.ErrUnsupported) {
		return err
	}
	ok := !slices.ContainsFunc(findings, func(f driver.Finding) bool { return f.Level == driver.LevelProblem })
	if asJSON {
		t := asConfigured(client.Traits(), findings)
		err = terminal.PrintJSON(a.stdout, diagnosisJSON{store.URL, traitsJSON{
			Store:            t.Store,
			Fencing:          t.Fencing,
			Fair:             t.Fair,
			MinTTLMS:         t.MinTTL.Milliseconds(),
			MaxTTLMS:         t.MaxTTL.Milliseconds(),
			GranularityMS:    t.Granularity.Milliseconds(),
			OneMachine:       t.OneMachine,
			SurvivesRestart:  t.SurvivesRestart,
			SurvivesFailover: t.SurvivesFailover,
		}, append([]driver.Finding{}, findings...), ok})
	} else {
		err = a.diagnoseText(store.URL, client.Traits(), findings)
	}
	if err == nil && !ok {
		err = exitWith(exitNo)
	}
	return err
}

func (a *app) diagnoseText(url string, traits driver.Traits, findings []driver.Finding) error {
	p := terminal.PainterFor(a.stdout)
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s\n\n%s\n", p.Paint(terminal.Bold, "Store"), terminal.Quote(url), p.Paint(terminal.Bold, "What it can promise as it is configured"))
	for _, sentence := range promises(traits, findings) {
		fmt.Fprintf(&b, "  %s\n", sentence)
	}
	fmt.Fprintf(&b, "\n%s\n", p.Paint(terminal.Bold, "What was found"))
	if len(findings) == 0 {
		b.WriteString("  Nothing: this store has no checks.\n")
	}
	styles := map[driver.Level]terminal.Style{driver.LevelOK: terminal.Green, driver.LevelWarning: terminal.Yellow, driver.LevelProblem: terminal.Red}
	for _, f := range findings {
		level := strings.ToUpper(string(f.Level))
		fmt.Fprintf(&b, "  %s  %s: %s\n", p.Paint(styles[f.Level], fmt.Sprintf("%-7s", level)),
			terminal.Quote(f.Check), terminal.Escape(f.Message))
	}
	return terminal.Print(a.stdout, b.String())
}

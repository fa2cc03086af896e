package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/spf13/cobra"
)

// diagnosisJSON is the output of doctor --json.
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
	SurvivesRestart  bool           `json:"survives_restart"`
	SurvivesFailover bool           `json:"survives_failover"`
}

func (a *app) doctorCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Say what this store, as configured, can promise",
		Long: `Say in words what the store can promise, then examine how it is configured.

The exit status is 0 if there is no problem (warnings are fine), 1 if there is
one, and 69 if the store cannot be reached or used.`,
		Example: `  dlock doctor
  dlock doctor --json | jq '.findings[] | select(.level != "ok")'`,
		Args: exactly(0, "no arguments"),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.withClient(cmd.Context(), func(client *dlock.Client, store *openStore) error {
				return a.diagnose(cmd.Context(), client, store, asJSON)
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON object")
	return cmd
}

func (a *app) diagnose(ctx context.Context, client *dlock.Client, store *openStore, asJSON bool) error {
	findings, err := client.Diagnose(ctx)
	if err != nil && !errors.Is(err, dlock.ErrUnsupported) {
		return err
	}
	ok := true
	for i := range findings {
		findings[i].Message = a.secrets.clean(findings[i].Message)
		ok = ok && findings[i].Level != driver.LevelProblem
	}
	url := a.secrets.clean(store.display)
	if asJSON {
		err = printJSON(a.stdout, diagnosisJSON{url, describeTraits(client.Traits()), append([]driver.Finding{}, findings...), ok})
	} else {
		err = a.diagnoseText(url, client.Traits(), findings)
	}
	if err == nil && !ok {
		err = exitWith(exitNo)
	}
	return err
}

func describeTraits(t driver.Traits) traitsJSON {
	return traitsJSON{
		Store:            t.Store,
		Fencing:          t.Fencing,
		Fair:             t.Fair,
		MinTTLMS:         t.MinTTL.Milliseconds(),
		MaxTTLMS:         t.MaxTTL.Milliseconds(),
		GranularityMS:    t.Granularity.Milliseconds(),
		SurvivesRestart:  t.SurvivesRestart,
		SurvivesFailover: t.SurvivesFailover,
	}
}

func (a *app) diagnoseText(url string, traits driver.Traits, findings []driver.Finding) error {
	p := painterFor(a.stdout)
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s\n\n%s\n", p.paint(bold, "Store"), harmless(url), p.paint(bold, "What it can promise"))
	for _, sentence := range promises(traits) {
		fmt.Fprintf(&b, "  %s\n", sentence)
	}
	fmt.Fprintf(&b, "\n%s\n", p.paint(bold, "What was found"))
	if len(findings) == 0 {
		fmt.Fprintf(&b, "  nothing: this store does not examine itself\n")
	}
	styles := map[driver.Level]style{driver.LevelOK: green, driver.LevelWarning: yellow, driver.LevelProblem: red}
	for _, f := range findings {
		level := strings.ToUpper(string(f.Level))
		fmt.Fprintf(&b, "  %s  %s: %s\n", p.paint(styles[f.Level], fmt.Sprintf("%-7s", level)),
			harmless(f.Check), harmlessLines(f.Message))
	}
	_, err := fmt.Fprint(a.stdout, b.String())
	return outputFailed(err)
}

// promises puts traits into words.
func promises(t driver.Traits) []string {
	var says []string
	switch t.Fencing {
	case driver.FencingStrong:
		says = append(says, "Tokens: every new holder of a name has a larger one, for as long as the store keeps its data.")
	case driver.FencingClockBound:
		says = append(says, "Tokens: they rise, also after data was lost, unless the store's clock steps back.")
	default:
		says = append(says, "Tokens: they may repeat or fall. Do not rely on them to fence off a late holder.")
	}
	if t.Fair {
		says = append(says, "Order: --fair serves first come, first served, on all machines.")
	} else {
		says = append(says, "Order: none, --fair is not available.")
	}
	if t.SurvivesRestart {
		says = append(says, "Restart: locks and tokens survive a crash of the store, when it is configured as recommended.")
	} else {
		says = append(says, "Restart: locks are gone when the store restarts, and may be granted twice.")
	}
	if t.SurvivesFailover {
		says = append(says, "Failover: locks and tokens survive the takeover of one server by another.")
	} else {
		says = append(says, "Failover: none. Where another server takes over, locks may be granted twice.")
	}
	limit := fmt.Sprintf("TTL: at least %v", t.MinTTL)
	if t.MaxTTL > 0 && t.MaxTTL < driver.MaxTTL {
		limit += fmt.Sprintf(", at most %v", t.MaxTTL)
	}
	if t.Granularity > time.Millisecond {
		limit += fmt.Sprintf(", counted in steps of %v", t.Granularity)
	}
	return append(says, limit+".",
		"Any store: a holder that is paused for longer than its TTL loses the lock without knowing; only a token that the resource checks keeps it out.")
}

package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/dlock-go/dlock/cmd/dlock/internal/oversell"
	"github.com/dlock-go/dlock/cmd/dlock/internal/terminal"
	"github.com/dlock-go/dlock/cmd/dlock/internal/timeline"
)

// oversellShow shows the runs: while they go on, as a table or as JSON, and in files.
type oversellShow struct {
	*app
	flags           *oversellFlags
	store, database string // for people
	files           drawings
	runs            []timeline.Run
	rows            [][]string
}

// oversellJSON is one run in the output of --json.
type oversellJSON struct {
	Guard        oversell.Guard `json:"guard"`
	Requests     int            `json:"requests"`
	Sold         int            `json:"sold"`
	FinalStock   int            `json:"final_stock"`
	Stock        int            `json:"stock"`
	AtOnce       int            `json:"at_once"`
	Refused      int            `json:"refused"`
	Processes    int            `json:"processes"`
	Clients      int            `json:"clients"`
	Seconds      float64        `json:"seconds"`
	RequestsPerS float64        `json:"requests_per_s"`
	WaitP50MS    float64        `json:"wait_p50_ms"`
	WaitP99MS    float64        `json:"wait_p99_ms"`
}

// markedColumn of oversellColumns is what the demo is about.
const markedColumn = 3

var oversellColumns = []terminal.Column{
	{Title: "GUARD"},
	{Title: "REQUESTS", Right: true},
	{Title: "SOLD", Right: true},
	{Title: "FINAL STOCK", Right: true, Want: "0"},
	{Title: "AT ONCE", Right: true},
	{Title: "REQUESTS/S", Right: true},
	{Title: "WAIT P50", Right: true},
	{Title: "WAIT P99", Right: true},
}

// run runs the scenario with each guard.
func (s *oversellShow) run(ctx context.Context, scenario *oversell.Scenario) error {
	bar := terminal.NewProgress(s.stderr)
	scenario.Progress = bar.Step
	if !s.flags.json {
		s.note("%d in stock, %d requests, %d processes; the stock is in %s, the locks are in %s",
			s.flags.stock, s.flags.clients*s.flags.requests, s.flags.processes, s.database, s.store)
	}
	exact := true
	t := terminal.Table{Columns: oversellColumns}
	for _, guard := range oversell.Guards {
		bar.Begin(string(guard), s.flags.clients*s.flags.requests, "sold")
		result, err := scenario.Run(ctx, guard)
		if err != nil {
			bar.End("")
			return err
		}
		bar.End(fmt.Sprintf("%d sold, final stock %d", result.Sold, result.FinalStock))
		run := s.timeline(result)
		s.runs = append(s.runs, run)
		if guard.Shared() {
			exact = exact && result.FinalStock == 0 && result.Sold == s.flags.stock
		}
		row := oversellRow(result, timeline.Most(run.Spans))
		s.rows = append(s.rows, row)
		t.Add(row...)
		if s.flags.json {
			if err := printJSON(s.stdout, s.describe(result, timeline.Most(run.Spans))); err != nil {
				return err
			}
		}
	}
	if !s.flags.json {
		if err := t.Print(s.stdout, terminal.PainterFor(s.stdout)); err != nil {
			return err
		}
	}
	if err := s.write(); err != nil {
		return err
	}
	if !exact {
		return failf(exitNo, "with a lock exactly %d should have been sold", s.flags.stock)
	}
	return nil
}

func oversellRow(r *oversell.Result, atOnce int) []string {
	return []string{
		string(r.Guard), strconv.Itoa(r.Requests), strconv.Itoa(r.Sold), strconv.Itoa(r.FinalStock), strconv.Itoa(atOnce),
		strconv.FormatFloat(r.Rate(), 'f', 0, 64), waitText(r.P50), waitText(r.P99),
	}
}

func waitText(d time.Duration) string {
	if d < 10*time.Millisecond {
		return fmt.Sprintf("%.1f ms", milliseconds(d))
	}
	return fmt.Sprintf("%d ms", d.Milliseconds())
}

func milliseconds(d time.Duration) float64 {
	return float64(d.Round(10*time.Microsecond)) / float64(time.Millisecond)
}

func (s *oversellShow) describe(r *oversell.Result, atOnce int) oversellJSON {
	return oversellJSON{
		Guard: r.Guard, Requests: r.Requests, Sold: r.Sold, FinalStock: r.FinalStock, Stock: s.flags.stock,
		AtOnce: atOnce, Refused: r.Refused, Processes: s.flags.processes, Clients: s.flags.clients,
		Seconds:      float64(r.Elapsed.Round(time.Millisecond)) / float64(time.Second),
		RequestsPerS: float64(int(r.Rate()*10)) / 10,
		WaitP50MS:    milliseconds(r.P50),
		WaitP99MS:    milliseconds(r.P99),
	}
}

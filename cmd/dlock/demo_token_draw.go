package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/dlock-go/dlock/cmd/dlock/internal/terminal"
	"github.com/dlock-go/dlock/cmd/dlock/internal/timeline"
	"github.com/dlock-go/dlock/cmd/dlock/internal/tokens"
)

var tokenColumns = []terminal.Column{
	{Title: "GUARD"},
	{Title: "PROCESSES", Right: true},
	{Title: "CALLS", Right: true},
	{Title: "FAILED", Right: true, Want: "0"},
	{Title: "FETCHES", Right: true, Want: "1"},
}

var tokenCaptions = map[string]string{
	"none":  "no lock",
	"dlock": "one lock for\nall processes",
}

// tokenPage is the page without its runs.
func tokenPage(flags *tokenFlags, store string) timeline.Page {
	const marked = 3
	return timeline.Page{
		Title: "dlock demo token",
		Intro: []string{
			fmt.Sprintf("%d processes send %d messages each to a service that wants an access token, of which only the last that was fetched is valid. A bar is the time in which a process looked for a token that others have left, or fetched one.",
				flags.processes, flags.calls),
			fmt.Sprintf("The locks are in %s.", store),
		},
		Marked: marked,
	}
}

// tokenTimeline turns a result into a drawing. Its time begins with the first process.
// What falls are the calls that went well.
func tokenTimeline(guard string, r *tokens.Result) timeline.Run {
	run := timeline.Run{
		Name:    guard,
		Caption: tokenCaptions[guard],
		Verdict: fmt.Sprintf("%d failed\n%d tokens fetched", r.Failed, r.Fetches),
		Bad:     r.Failed > 0,
		Stock:   r.Calls,
		Of:      "calls that were taken",
	}
	begin := int64(0)
	for _, log := range r.Logs {
		for _, visit := range log.Visits {
			if begin == 0 || visit.From < begin {
				begin = visit.From
			}
		}
	}
	since := func(at int64) time.Duration { return time.Duration(at - begin) }
	for lane, log := range r.Logs {
		run.Lanes = append(run.Lanes, fmt.Sprintf("process %d", lane+1))
		for _, visit := range log.Visits {
			what := "found a token"
			if visit.Fetched {
				what = "fetched a token"
			}
			run.Spans = append(run.Spans, timeline.Span{Lane: lane, From: since(visit.From), To: since(visit.To),
				Label: fmt.Sprintf("process %d, %.3f s to %.3f s, %s", lane+1, since(visit.From).Seconds(), since(visit.To).Seconds(), what)})
			run.Length = max(run.Length, since(visit.To))
		}
		for _, at := range log.Failed {
			run.Sales = append(run.Sales, since(at))
			run.Length = max(run.Length, since(at))
		}
		run.Length = max(run.Length, since(log.Ended))
	}
	slices.Sort(run.Sales)
	return run
}

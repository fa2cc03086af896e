package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dlock-go/dlock/cmd/dlock/internal/oversell"
	"github.com/dlock-go/dlock/cmd/dlock/internal/timeline"
)

var guardCaptions = map[oversell.Guard]string{
	oversell.None:   "no lock",
	oversell.Local:  "a mutex in\neach process",
	oversell.Dlock:  "one lock for\nall processes",
	oversell.Fenced: "the same, and the\nrow checks its token",
}

// timeline turns a result into a drawing. Its time begins with the first visit.
func (s *oversellShow) timeline(r *oversell.Result) timeline.Run {
	run := timeline.Run{
		Name:    string(r.Guard),
		Caption: guardCaptions[r.Guard],
		Verdict: fmt.Sprintf("%s left\n%d sold of %d", strings.Replace(strconv.Itoa(r.FinalStock), "-", "\u2212", 1), r.Sold, s.flags.stock),
		Bad:     r.FinalStock < 0,
		Stock:   s.flags.stock,
	}
	begin, end := int64(0), int64(0)
	for _, visits := range r.Visits {
		for _, v := range visits {
			if begin == 0 || v.From < begin {
				begin = v.From
			}
			end = max(end, v.To)
		}
	}
	since := func(at int64) time.Duration { return time.Duration(at - begin) }
	for lane, visits := range r.Visits {
		run.Lanes = append(run.Lanes, fmt.Sprintf("process %d", lane+1))
		for _, v := range visits {
			run.Spans = append(run.Spans, timeline.Span{Lane: lane, From: since(v.From), To: since(v.To), Label: visitLabel(lane, v, since)})
			if v.Sold != 0 {
				run.Sales = append(run.Sales, since(v.Sold))
			}
		}
	}
	slices.Sort(run.Sales)
	run.Length = since(end)
	return run
}

func visitLabel(lane int, v oversell.Visit, since func(int64) time.Duration) string {
	what := "sold nothing"
	if v.Sold != 0 {
		what = "sold one"
	}
	label := fmt.Sprintf("process %d, %.3f s to %.3f s, %s", lane+1, since(v.From).Seconds(), since(v.To).Seconds(), what)
	if v.Token != 0 {
		label += fmt.Sprintf(", token %d", v.Token)
	}
	return label
}

// write writes the files that were asked for.
func (s *oversellShow) write() error {
	return s.files.write(oversellColumns, timeline.Page{
		Title: "dlock demo oversell",
		Intro: []string{
			fmt.Sprintf("%d clients sent %d requests each to %d processes that sell the same stock of %d. Each request reads the stock, thinks, and then writes it. A bar is the time that a request was inside, from before the read to after the write.",
				s.flags.clients, s.flags.requests, s.flags.processes, s.flags.stock),
			fmt.Sprintf("The stock is in %s, the locks are in %s.", s.database, s.store),
		},
		Marked: markedColumn,
		Table:  s.rows,
		Runs:   s.runs,
	})
}

package main

import (
	"cmp"
	"fmt"
	"math"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strings"

	"github.com/dlock-go/dlock/test/bench/page"
	"github.com/dlock-go/dlock/test/harness/digits"
)

// These explain the page.
const (
	summary = "How many times a second dlock locks and unlocks, beside the fastest other library and beside the floor. More is better."
	legend  = "A bar is the median of several rounds; the mark on it reaches from the lowest round to the best one. " +
		"The floor (raw) is the simplest commands that lock, with no token and no notification; waiters poll. " +
		"bare and store are parts of dlock. A ratio to the floor, or to the fastest peer, compares rates of the same round: 2× is twice as fast. " +
		"p99 is the 99th percentile of the time that a lock takes while others want it; unequal shares, in its place, " +
		"means that a few goroutines get most of the pairs (Jain's index is below 0.5)."
)

// of returns the results of a kind of case on a store.
func (c collection) of(store, kind string) collection {
	return slices.DeleteFunc(slices.Clone(c), func(r result) bool { return r.kase != store+"/"+kind })
}

// presented returns the page of the results.
func presented(results collection, about string) page.Page {
	p := page.Page{Summary: summary, About: []string{legend, about}}
	for _, table := range rateTables {
		if rows := results.rows(table); len(rows) > 1 {
			p.Tables = append(p.Tables, rows)
		}
	}
	for _, k := range kinds {
		charts := results.charts(k)
		if k.points != nil {
			charts = results.curves(k)
		}
		if charts != nil {
			p.Sections = append(p.Sections, page.Section{Title: k.title, About: k.about, Charts: charts})
		}
	}
	return p
}

// charts returns the chart of every store for a kind of case.
func (c collection) charts(k kind) (charts []page.Drawn) {
	for _, store := range storeNames() {
		results := c.of(store, k.name)
		if len(results) == 0 {
			continue
		}
		drawn := page.Drawn{Title: store, Figures: results.allFigures()}
		if bars := results.bars(); len(bars) > 0 {
			drawn.Chart = bars
		}
		charts = append(charts, drawn)
	}
	return charts
}

// bars returns the bars of one case, the best first. A case without a rate has
// none.
func (c collection) bars() (bars page.Bars) {
	more := 1.0 // is better; -1 if less is
	for _, r := range c {
		b := page.Bar{Subject: r.subject, Role: role(r.subject), Failure: r.failure}
		rate, timed := r.figures[pairsPerS]
		switch above, command := r.figures[aboveBare]; {
		case command:
			more = -1
			b.Value, b.Low, b.High = r.figures[p50]/1000, r.figures[p50]/1000, r.figures[p99]/1000
			b.Shown = fmt.Sprintf("%.1f ms", b.Value)
			if above != 0 {
				b.Note = fmt.Sprintf("%.1f ms above the bare command", above)
			}
		case timed:
			b.Value, b.Low, b.High = rate, r.figures[lowestRate], r.figures[bestRate]
			b.Shown, b.Note = perSecond(rate), r.note()
		case r.failure == "":
			return nil
		}
		bars = append(bars, b)
	}
	slices.SortStableFunc(bars, func(a, b page.Bar) int {
		if (a.Failure == "") != (b.Failure == "") {
			return cmp.Compare(a.Failure, b.Failure)
		}
		return cmp.Compare(more*b.Value, more*a.Value)
	})
	return bars
}

// wait returns the 99th percentile of the time of a lock, or nothing. If a few
// goroutines got most of the pairs, these waited for nothing, and the wait of all
// pairs together says little.
func (r result) wait() string {
	ms, ok := r.figures[p99Wait]
	if !ok {
		return ""
	}
	if index, ok := r.figures[jain]; ok && index < 0.5 {
		return unequal
	}
	return fmt.Sprintf("%.1f ms", ms)
}

// unequal stands in place of a wait.
const unequal = "unequal shares"

// note returns what stands beside the subject of a bar.
func (r result) note() string {
	var parts []string
	if ratio := r.figures[rateOfFloor]; ratio > 0 && !isFloor(r.subject) {
		parts = append(parts, fmt.Sprintf("%.2f× floor", ratio))
	}
	if ratio := r.figures[rateOfPeer]; ratio > 0 && role(r.subject) == page.Dlock {
		parts = append(parts, fmt.Sprintf("%.2f× peer", ratio))
	}
	if ratio := r.figures[rateOfExclusive]; ratio > 0 {
		parts = append(parts, fmt.Sprintf("%.2f× exclusive", ratio))
	}
	if wait := r.wait(); wait == unequal {
		parts = append(parts, wait)
	} else if wait != "" {
		parts = append(parts, "p99 "+wait)
	}
	return strings.Join(parts, " · ")
}

// curves returns the curves of growth of a kind: a chart for each store with
// several subjects, and one chart with a line for each other store.
func (c collection) curves(k kind) (charts []page.Drawn) {
	together := page.Curves{X: k.axis, Y: "pairs/s"}
	var figures [][]string
	for _, store := range storeNames() {
		results := c.of(store, k.name)
		lines := results.lines()
		if len(lines) > 1 {
			own := page.Curves{X: k.axis, Y: "pairs/s", Lines: lines}
			charts = append(charts, page.Drawn{Title: store, Chart: own, Figures: results.allFigures()})
		} else if len(lines) == 1 {
			lines[0].Subject, lines[0].Role = store, page.Peer // for a colour of its own
			together.Lines = append(together.Lines, lines[0])
			figures = append(figures, results.allFigures()...)
		}
	}
	if together.Lines != nil {
		charts = append(charts, page.Drawn{Title: "dlock", Chart: together, Figures: figures})
	}
	return charts
}

// lines returns a line for each subject.
func (c collection) lines() (lines []page.Line) {
	for _, r := range c {
		i := slices.IndexFunc(lines, func(l page.Line) bool { return l.Subject == r.subject })
		if i < 0 {
			i, lines = len(lines), append(lines, page.Line{Subject: r.subject, Role: role(r.subject)})
		}
		if r.failure != "" {
			lines[i].Failure = r.failure
			continue
		}
		lines[i].Points = append(lines[i].Points, page.Point{X: r.figures[point], Y: r.figures[pairsPerS]})
	}
	return lines
}

// allFigures returns the table of everything that was measured.
func (c collection) allFigures() [][]string { return c.table(slices.Concat(fixed, c.extras())) }

func perSecond(rate float64) string { return grouped(rate) + "/s" }

// grouped formats v without a fraction, with commas between thousands. A small
// value keeps three digits.
func grouped(v float64) string {
	if v < 100 {
		return short(v)
	}
	return digits.Grouped(int(math.RoundToEven(v)))
}

var cpuModel = regexp.MustCompile(`(?m)^model name\s*:\s*(.+)$`)

// machine describes this machine.
func machine() string {
	model := runtime.GOARCH
	if content, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		if found := cpuModel.FindSubmatch(content); found != nil {
			model = string(found[1])
		}
	}
	return fmt.Sprintf("%d cores of %s, %s, %s", runtime.NumCPU(), model, runtime.GOOS, runtime.Version())
}

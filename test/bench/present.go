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

// chapter is a kind of case, as readers see it.
type chapter struct{ kind, title, about string }

// headlines are the kinds that a reader looks for first.
var headlines = []chapter{
	{"solo", "Alone", "One goroutine takes a lock that nothing else wants."},
	{"many", "Many", "64 goroutines of one process, each with a lock of its own."},
	{"handover", "Contended", "4 processes with 4 goroutines each want one lock and hold it for 1 ms, so that 1,000/s is the limit."},
	{"crowd", "Hot", "16 goroutines of one process want one lock and release it at once."},
}

// modeChapters are the kinds in which a lock may have several holders.
var modeChapters = []chapter{
	{"readers", "Readers", "4 processes with 16 goroutines each use one name for 1 ms at a time, 95 % of the time shared. " +
		"dlock/exclusive is the same with exclusive locks only."},
	{"permits", "Permits", "4 processes with 16 goroutines each use a semaphore with 8 permits for 1 ms at a time, so that 8,000/s is the limit. " +
		"dlock/exclusive is the same with an exclusive lock."},
}

var furtherChapters = []chapter{
	{"exec", "Command line", "Time of a command that does nothing, alone and under a lock. Less is better; the mark ends at the 99th percentile."},
	{"waiters", "Waiting", "10,000 goroutines of one process wait for one lock."},
	{"held", "Held", "One client holds many locks and renews them."},
}

// curveChapters are the curves of growth. One with several subjects has a chart
// for each store; the others have one chart with a line for each store.
var curveChapters = []struct {
	chapter
	axis string
}{
	{chapter{"grow-crowd", "Growth: a hot lock", "Goroutines of one process want one lock and release it at once."}, "goroutines"},
	{chapter{"grow-processes", "Growth: processes", "Processes with 4 goroutines each want one lock and hold it for 1 ms. Where processes cannot share the store, clients take their place."}, "processes"},
	{chapter{"grow-readers", "Growth: readers", "Goroutines of one process use one name shared, for 10 ms at a time. Their requests to the store are in the table."}, "readers"},
	{chapter{"grow-waiters", "Growth: waiters", "Goroutines of one process wait for one lock, which is then handed from one to the next."}, "waiters"},
	{chapter{"grow-held", "Growth: locks held", "One goroutine locks and unlocks while its client holds other locks."}, "locks held"},
}

// These explain the page.
const (
	summary = "How many times a second dlock locks and unlocks, beside the fastest other library and beside the floor. More is better."
	legend  = "A bar is the median of several rounds; the mark on it reaches from the lowest round to the best one. " +
		"The floor (raw) is the simplest commands that lock, with no token and no notification; waiters poll. " +
		"bare and store are parts of dlock. A ratio to the floor, or to the fastest peer, compares rates of the same round: 2× is twice as fast. " +
		"p99 is the 99th percentile of the time that a lock takes while others want it; unequal shares, in its place, " +
		"means that a few goroutines get most of the pairs (Jain's index is below 0.5)."
)

// collection is the results of a run.
type collection []result

// of returns the results of a kind of case on a store.
func (c collection) of(store, kind string) (found []result) {
	for _, r := range c {
		if r.kase == store+"/"+kind {
			found = append(found, r)
		}
	}
	return found
}

// find returns the result of dlock in a case, and its fastest peer; nil without a peer.
func (c collection) find(store, kind string) (ours, peer *result) {
	results := c.of(store, kind)
	for i, r := range results {
		if r.subject == "dlock" && r.failure == "" {
			ours = &results[i]
		}
	}
	if ours != nil {
		peer = fastest(results, ours.comparableWith)
	}
	if peer != nil && peer.failure != "" {
		peer = nil
	}
	return ours, peer
}

// presented returns the page of the results.
func presented(results collection, about string) page.Page {
	p := page.Page{Summary: summary, About: []string{legend, about}}
	for _, h := range headlines {
		p.Columns = append(p.Columns, page.Column{Title: h.title, About: h.about})
	}
	for _, store := range storeNames() {
		row := page.Row{Store: store}
		measured := false
		for _, h := range headlines {
			cell := results.cell(store, h.kind)
			row.Cells, measured = append(row.Cells, cell), measured || cell.Rate != ""
		}
		if measured {
			p.Rows = append(p.Rows, row)
		}
	}
	for _, chapter := range slices.Concat(headlines, modeChapters, furtherChapters) {
		p.Sections = appendSection(p.Sections, chapter, results.charts(chapter.kind))
	}
	for _, chapter := range curveChapters {
		p.Sections = appendSection(p.Sections, chapter.chapter, results.curves(chapter.kind, chapter.axis))
	}
	return p
}

func appendSection(sections []page.Section, c chapter, charts []page.Drawn) []page.Section {
	if len(charts) == 0 {
		return sections
	}
	return append(sections, page.Section{Title: c.title, About: c.about, Charts: charts})
}

func (c collection) cell(store, kind string) (cell page.Cell) {
	ours, peer := c.find(store, kind)
	if ours == nil {
		return cell
	}
	cell.Rate = perSecond(ours.figures[pairsPerS])
	if ratio := ours.figures[rateOfFloor]; ratio > 0 {
		cell.Floor = fmt.Sprintf("%.2f× the floor", ratio)
	}
	if ratio := ours.figures[rateOfPeer]; peer != nil && ratio > 0 {
		cell.Peer = fmt.Sprintf("%.2f× %s", ratio, peer.subject)
		cell.Behind = ratio < 1
	}
	return cell
}

// charts returns the chart of every store for a kind of case.
func (c collection) charts(kind string) (charts []page.Drawn) {
	for _, store := range storeNames() {
		results := c.of(store, kind)
		if len(results) == 0 {
			continue
		}
		drawn := page.Drawn{Title: store}
		drawn.Header, drawn.Figures = allFigures(results)
		if bars := barsOf(results); len(bars) > 0 {
			drawn.Chart = bars
		}
		charts = append(charts, drawn)
	}
	return charts
}

// barsOf returns the bars of one case, the best first. A case without a rate has
// none.
func barsOf(results []result) (bars page.Bars) {
	for _, r := range results {
		b := page.Bar{Subject: r.subject, Role: role(r.subject), Failure: r.failure}
		rate, timed := r.figures[pairsPerS]
		switch above, command := r.figures[aboveBare]; {
		case command:
			b.Value = r.figures[p50] / 1000
			b.Low, b.High = b.Value, r.figures[p99]/1000
			b.Shown = fmt.Sprintf("%.1f ms", b.Value)
			if above != 0 {
				b.Note = fmt.Sprintf("%.1f ms above the bare command", above)
			}
		case timed:
			b.Value, b.Low, b.High = rate, r.figures[lowestRate], r.figures[bestRate]
			b.Shown, b.Note = perSecond(rate), note(r)
		case r.failure == "":
			return nil
		}
		bars = append(bars, b)
	}
	slices.SortStableFunc(bars, func(a, b page.Bar) int {
		better := cmp.Compare(b.Value, a.Value)
		if a.Failure == "" && b.Failure == "" && strings.HasSuffix(a.Shown, "ms") {
			better = -better
		}
		return better
	})
	return bars
}

// unequal stands in place of a wait.
const unequal = "unequal shares"

// equalShares reports whether the goroutines got about the same number of pairs.
// If a few of them got most of the pairs, these waited for nothing, and the wait
// of all pairs together says little.
func (r result) equalShares() bool {
	index, ok := r.figures[jain]
	return !ok || index >= 0.5
}

// note returns what stands beside the subject of a bar.
func note(r result) string {
	var parts []string
	if ratio := r.figures[rateOfFloor]; ratio > 0 && !isFloor(r.subject) {
		parts = append(parts, fmt.Sprintf("%.2f× floor", ratio))
	}
	if ratio := r.figures[rateOfPeer]; ratio > 0 && isDlock(r.subject) {
		parts = append(parts, fmt.Sprintf("%.2f× peer", ratio))
	}
	if ratio := r.figures[rateOfExclusive]; ratio > 0 {
		parts = append(parts, fmt.Sprintf("%.2f× exclusive", ratio))
	}
	if wait, ok := r.figures[p99Wait]; ok && r.equalShares() {
		parts = append(parts, fmt.Sprintf("p99 %s ms", short(wait)))
	} else if ok {
		parts = append(parts, unequal)
	}
	return strings.Join(parts, " · ")
}

// curves returns the curves of growth of a kind.
func (c collection) curves(kind, axis string) (charts []page.Drawn) {
	together := page.Drawn{Title: "dlock", Header: []string{"store", axis, "pairs/s"}}
	lines := page.Curves{X: axis, Y: "pairs/s"}
	for _, store := range storeNames() {
		results := c.of(store, kind)
		if len(results) == 0 {
			continue
		}
		own := linesOf(results)
		if len(own) > 1 {
			drawn := page.Drawn{Title: store, Chart: page.Curves{X: axis, Y: "pairs/s", Lines: own}}
			drawn.Header, drawn.Figures = allFigures(results)
			charts = append(charts, drawn)
			continue
		}
		own[0].Subject, own[0].Role = store, page.Peer // for a colour of its own
		lines.Lines = append(lines.Lines, own[0])
		header, figures := allFigures(results)
		together.Header = append([]string{"store"}, header...)
		for _, row := range figures {
			together.Figures = append(together.Figures, append([]string{store}, row...))
		}
	}
	if lines.Lines != nil {
		together.Chart = lines
		charts = append(charts, together)
	}
	return charts
}

// linesOf returns a line for each subject.
func linesOf(results []result) (lines []page.Line) {
	for _, r := range results {
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

// allFigures returns the figures of some results as a table.
func allFigures(results []result) (header []string, rows [][]string) {
	var names []string
	for _, name := range append(slices.Clone(fixed), extrasOf(results)...) {
		if slices.ContainsFunc(results, func(r result) bool { _, ok := r.figures[name]; return ok }) {
			names = append(names, name)
		}
	}
	header = append(header, "subject")
	for _, name := range names {
		header = append(header, strings.ReplaceAll(name, "_", " "))
	}
	for _, r := range results {
		row := []string{r.subject}
		if r.failure != "" {
			row = append(row, "failed: "+r.failure)
			rows = append(rows, row)
			continue
		}
		for _, name := range names {
			row = append(row, r.show(name))
		}
		rows = append(rows, row)
	}
	return header, rows
}

// extrasOf returns the names of all figures that not every line has.
func extrasOf(results []result) (names []string) {
	for _, r := range results {
		names = append(names, r.extras()...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func role(subject string) page.Role {
	switch {
	case isFloor(subject), strings.HasPrefix(subject, "raw/"):
		return page.Floor
	case isDlock(subject):
		return page.Dlock
	case isPeer(subject):
		return page.Peer
	}
	return page.Part
}

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

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/dlock-go/dlock/test/bench/page"
	"github.com/dlock-go/dlock/test/bench/subjects"
)

// result is the result of a subject in a case.
type result struct {
	kase    string
	subject string
	figures figures   // medians
	rounds  []figures // in the order of the measurements; none if they were read from a file
	failure string    // why there are no figures
}

// collection is the results of a run, or of a case.
type collection []result

// role returns what the subject is.
func role(subject string) page.Role {
	switch name, _, _ := strings.Cut(subject, "/"); name {
	case "raw", "true":
		return page.Floor
	case "dlock", "dlock exec": // as its users run it
		return page.Dlock
	case "bare", "store":
		return page.Part
	}
	return page.Peer
}

// isFloor reports whether the subject is the simplest one of its case.
func isFloor(subject string) bool { return subject == "raw" || subject == "true" }

// comparableWith reports whether the subject is a peer that does the same: those
// with several servers are compared with each other only.
func (r result) comparableWith(subject string) bool {
	const redlock = "/redlock"
	return role(subject) == page.Peer && strings.HasSuffix(subject, redlock) == strings.HasSuffix(r.subject, redlock)
}

// compareRates adds the ratios of the rates of one case.
func (c collection) compareRates() {
	for _, r := range c {
		for name, match := range map[string]func(string) bool{
			rateOfFloor:     isFloor,
			rateOfPeer:      r.comparableWith,
			rateOfExclusive: func(subject string) bool { return subject == r.subject+subjects.ExclusiveSuffix },
		} {
			if other := c.fastest(match); other != nil && r.figures[pairsPerS] > 0 {
				r.figures[name] = r.ratio(*other, pairsPerS)
			}
		}
	}
}

// fastest returns the matching result with the best rate, or nil.
func (c collection) fastest(match func(subject string) bool) (best *result) {
	for i, r := range c {
		if match(r.subject) && (best == nil || r.figures[pairsPerS] > best.figures[pairsPerS]) {
			best = &c[i]
		}
	}
	return best
}

// ratio returns the median ratio of a figure to that of another subject in the
// same round: a machine that is slower for a while is slower for both.
func (r result) ratio(other result, figure string) float64 {
	var ratios []figures
	for i := range min(len(r.rounds), len(other.rounds)) {
		if of := other.rounds[i][figure]; of > 0 {
			ratios = append(ratios, figures{figure: r.rounds[i][figure] / of})
		}
	}
	return median(ratios)[figure]
}

// extras returns the names of the figures that not every line has.
func (c collection) extras() []string {
	names := make(map[string]bool)
	for _, r := range c {
		for name := range r.figures {
			names[name] = !slices.Contains(fixed, name)
		}
	}
	maps.DeleteFunc(names, func(_ string, extra bool) bool { return !extra })
	return slices.Sorted(maps.Keys(names))
}

// printJSON writes one object per line: case, subject, and the figures by name.
// Fixed figures that do not apply are null.
func (c collection) printJSON(w io.Writer) error {
	lines := json.NewEncoder(w)
	lines.SetEscapeHTML(false)
	for _, r := range c {
		line := map[string]any{"case": r.kase, "subject": r.subject}
		for _, name := range fixed {
			line[name] = nil
		}
		for name, value := range r.figures {
			line[name] = value
		}
		if r.failure != "" {
			line["failure"] = r.failure
		}
		if err := lines.Encode(line); err != nil {
			return err
		}
	}
	return nil
}

// readJSON reads what printJSON wrote.
func readJSON(path string) (c collection, err error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	for lines := json.NewDecoder(file); ; {
		var line map[string]any
		if err := lines.Decode(&line); errors.Is(err, io.EOF) {
			return c, nil
		} else if err != nil {
			return nil, fmt.Errorf("result %d: %w", len(c)+1, err)
		}
		r := result{figures: make(figures)}
		for name, value := range line {
			if value, ok := value.(float64); ok {
				r.figures[name] = value
			}
		}
		r.kase, _ = line["case"].(string)
		r.subject, _ = line["subject"].(string)
		r.failure, _ = line["failure"].(string)
		if r.kase == "" || r.subject == "" {
			return nil, fmt.Errorf("result %d has no case or no subject", len(c)+1)
		}
		c = append(c, r)
	}
}

// columns are the figures that most cases have.
var columns = []string{pairsPerS, rateOfFloor, rateOfPeer, p50, p99, p99Wait, jain, perPair}

// printTable prints the results of one case as a table, and below it what only
// some subjects have.
func (c collection) printTable(w io.Writer) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, row := range c.table(columns) {
		fmt.Fprintln(table, strings.Join(row, "\t")+"\t")
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for _, r := range c {
		parts := c.ratios(r)
		for _, name := range (collection{r}).extras() {
			if !slices.Contains(columns, name) {
				parts = append(parts, name+" "+r.show(name))
			}
		}
		if r.failure != "" {
			parts = append(parts, "failed: "+r.failure)
		}
		if parts != nil {
			fmt.Fprintf(w, "  %s: %s\n", r.subject, strings.Join(parts, ", "))
		}
	}
	_, err := fmt.Fprintln(w)
	return err
}

// table returns those of the figures that a subject of a case has, below a line
// with their names.
func (c collection) table(names []string) (rows [][]string) {
	header := []string{c[0].kase}
	for _, name := range names {
		if c.has(name) {
			header = append(header, strings.ReplaceAll(name, "_", " "))
		}
	}
	rows = append(rows, header)
	for _, r := range c {
		row := []string{r.subject}
		for _, name := range names {
			if c.has(name) {
				row = append(row, r.show(name))
			}
		}
		rows = append(rows, row)
	}
	return rows
}

func (c collection) has(name string) bool {
	return slices.ContainsFunc(c, func(r result) bool { _, ok := r.figures[name]; return ok })
}

// ratios compares one of dlock's subjects with its parts and with other libraries.
func (c collection) ratios(r result) (texts []string) {
	_, variant, _ := strings.Cut(r.subject, "/")
	for _, other := range c {
		_, its, _ := strings.Cut(other.subject, "/")
		same := role(other.subject) == page.Part && its == variant || r.comparableWith(other.subject)
		if ratio := r.ratio(other, pairsPerS); role(r.subject) == page.Dlock && same && ratio > 0 {
			texts = append(texts, fmt.Sprintf("%.2f of %s's rate", ratio, other.subject))
		}
	}
	return texts
}

func (r result) show(name string) string {
	if value, ok := r.figures[name]; ok {
		return short(value)
	}
	return "-"
}

// short formats v with three significant digits, and all digits before the point.
func short(v float64) string {
	switch size := math.Abs(v); {
	case v == math.Trunc(v) || size >= 100:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case size >= 10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	case size >= 1:
		return strconv.FormatFloat(v, 'f', 2, 64)
	default:
		return strconv.FormatFloat(v, 'g', 3, 64)
	}
}

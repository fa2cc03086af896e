package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/dlock-go/dlock/test/bench/subjects"
)

// result is the result of a subject in a case.
type result struct {
	kase    string
	subject string
	figures figures   // medians
	rounds  []figures // in the order of the measurements
	failure string    // why there are no figures
}

// compareRates adds the ratios of the rates of one case.
func compareRates(results []result) {
	floor := fastest(results, isFloor)
	for _, r := range results {
		if floor != nil && r.figures[pairsPerS] > 0 {
			r.figures[rateOfFloor] = r.ratio(*floor, pairsPerS)
		}
		if peer := fastest(results, r.comparableWith); peer != nil && r.figures[pairsPerS] > 0 {
			r.figures[rateOfPeer] = r.ratio(*peer, pairsPerS)
		}
		for _, other := range results {
			if other.subject == r.subject+subjects.ExclusiveSuffix && r.figures[pairsPerS] > 0 {
				r.figures[rateOfExclusive] = r.ratio(other, pairsPerS)
			}
		}
	}
}

// printJSON writes one object per line: case, subject, the fixed figures, and
// then those of the case by name.
func printJSON(w io.Writer, results []result) error {
	for _, r := range results {
		var line strings.Builder
		fmt.Fprintf(&line, `{"case":%s,"subject":%s`, quote(r.kase), quote(r.subject))
		for _, name := range append(slices.Clone(fixed), r.extras()...) {
			value := "null"
			if v, ok := r.figures[name]; ok {
				value = strconv.FormatFloat(v, 'f', -1, 64)
			}
			fmt.Fprintf(&line, ",%s:%s", quote(name), value)
		}
		if r.failure != "" {
			fmt.Fprintf(&line, `,"failure":%s`, quote(r.failure))
		}
		if _, err := fmt.Fprintf(w, "%s}\n", line.String()); err != nil {
			return err
		}
	}
	return nil
}

func quote(text string) string {
	b, _ := json.Marshal(text) // a string: cannot fail
	return string(b)
}

// extras returns the names of the figures that not every line has.
func (r result) extras() []string {
	names := slices.Sorted(maps.Keys(r.figures))
	return slices.DeleteFunc(names, func(name string) bool { return slices.Contains(fixed, name) })
}

// printTable prints the results of one case as a table.
func printTable(w io.Writer, results []result) error {
	if len(results) == 0 {
		return nil
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(table, "%s\tpairs/s\tspread\tvs floor\tvs peer\tp50 us\tp99 us\tp99 wait ms\tjain\tcmds/pair\t\n", results[0].kase)
	for _, r := range results {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t\n", r.label(),
			r.show(pairsPerS), r.spread(), r.times(rateOfFloor), r.times(rateOfPeer),
			r.show(p50), r.show(p99), r.show(p99Wait), r.show(jain), r.show(perPair))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for _, r := range results {
		var parts []string
		for _, name := range r.extras() {
			if !slices.Contains([]string{lowestRate, bestRate, rateOfFloor, rateOfPeer, rateOfExclusive, point}, name) {
				parts = append(parts, name+" "+r.show(name))
			}
		}
		if len(parts) > 0 {
			fmt.Fprintf(w, "  %s: %s\n", r.label(), strings.Join(parts, ", "))
		}
	}
	for _, r := range results {
		if r.failure != "" {
			fmt.Fprintf(w, "  %s: failed: %s\n", r.subject, r.failure)
		}
		if line := r.compared(results); line != "" {
			fmt.Fprintf(w, "  %s: %s\n", r.subject, line)
		}
	}
	_, err := fmt.Fprintln(w)
	return err
}

// isFloor reports whether the subject is the simplest one of its case.
func isFloor(subject string) bool { return subject == "raw" || subject == "true" }

// isDlock reports whether the subject is dlock as its users run it.
func isDlock(subject string) bool {
	name, _, _ := strings.Cut(subject, "/")
	return name == "dlock" || name == "dlock exec"
}

// label returns the subject, and where it is on a curve of growth.
func (r result) label() string {
	if at, ok := r.figures[point]; ok {
		return r.subject + " " + short(at)
	}
	return r.subject
}

// isPeer reports whether the subject is another library.
func isPeer(subject string) bool {
	name, _, _ := strings.Cut(subject, "/")
	return !isFloor(name) && !isDlock(name) && name != "bare" && name != "store"
}

// redlock is the suffix of the variants with several servers, which are compared
// with each other only.
const redlock = "/redlock"

// comparableWith reports whether the subject is a peer that does the same.
func (r result) comparableWith(subject string) bool {
	return isPeer(subject) && strings.HasSuffix(subject, redlock) == strings.HasSuffix(r.subject, redlock)
}

// compared describes the ratios of one of dlock's subjects to the others.
func (r result) compared(results []result) string {
	if name, _, _ := strings.Cut(r.subject, "/"); name != "dlock" || r.figures[pairsPerS] == 0 || r.figures[point] > 0 {
		return ""
	}
	_, variant, _ := strings.Cut(r.subject, "/")
	var rates, medians []string
	for _, other := range results {
		if other.failure != "" {
			continue
		}
		name, sort, _ := strings.Cut(other.subject, "/")
		ours := sort == variant && (name == "bare" || name == "store") || other.subject == "bare/pipelined" && variant == ""
		peer := r.comparableWith(other.subject)
		if ours || peer || other.subject == r.subject+subjects.ExclusiveSuffix {
			rates = append(rates, fmt.Sprintf("%.2f of %s's", r.ratio(other, pairsPerS), other.subject))
		}
		if (ours || peer || isFloor(other.subject)) && other.figures[p50] > 0 {
			medians = append(medians, fmt.Sprintf("%.2f of %s's", r.ratio(other, p50), other.subject))
		}
	}
	var parts []string
	if len(rates) > 0 {
		parts = append(parts, "the rate is "+strings.Join(rates, ", "))
	}
	if len(medians) > 0 {
		parts = append(parts, "p50 is "+strings.Join(medians, ", "))
	}
	return strings.Join(parts, "; ")
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

// fastest returns the matching result with the best rate, or nil.
func fastest(results []result, match func(subject string) bool) (best *result) {
	for i, r := range results {
		if match(r.subject) && (best == nil || r.figures[pairsPerS] > best.figures[pairsPerS]) {
			best = &results[i]
		}
	}
	return best
}

// times returns how many times longer a pair takes than with another subject.
func (r result) times(ratio string) string {
	if r.figures[ratio] == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2fx", 1/r.figures[ratio])
}

// spread returns the lowest and the best rate of the rounds.
func (r result) spread() string {
	low, high := r.figures[lowestRate], r.figures[bestRate]
	if low == 0 || high == low {
		return "-"
	}
	return short(low) + ".." + short(high)
}

func (r result) show(name string) string {
	value, ok := r.figures[name]
	if !ok {
		return "-"
	}
	return short(value)
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

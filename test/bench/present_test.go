package main

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/dlock-go/dlock/test/bench/page"
)

// sample has a store with a peer that fails and one that does not, commands, and
// curves of growth.
func sample() collection {
	all := collection{
		{kase: "redis/solo", subject: "raw", figures: figures{pairsPerS: 30000, lowestRate: 29000, bestRate: 31000, rateOfFloor: 1}},
		{kase: "redis/solo", subject: "dlock", figures: figures{pairsPerS: 20000, lowestRate: 19000, bestRate: 21000, rateOfFloor: 0.66, rateOfPeer: 0.8}},
		{kase: "redis/solo", subject: "redislock", figures: figures{pairsPerS: 25000, rateOfPeer: 1}},
		{kase: "redis/solo", subject: "redsync", failure: "<gone>"},
		{kase: "redis/crowd", subject: "dlock", figures: figures{pairsPerS: 150000, p99Wait: 0.7, jain: 0.5}},
		{kase: "sqlite/crowd", subject: "dlock", figures: figures{pairsPerS: 300, p99Wait: 0.1, jain: 0.1}},
		{kase: "redis/readers", subject: "dlock", figures: figures{pairsPerS: 9000, lowestRate: 8000, bestRate: 9500, rateOfPeer: 6, rateOfExclusive: 12, p99Wait: 8.4, jain: 1}},
		{kase: "redis/readers", subject: "redisson", figures: figures{pairsPerS: 1500, rateOfPeer: 1}},
		{kase: "sqlite/exec", subject: "true", figures: figures{pairsPerS: 1000, p50: 1000, p99: 2000, aboveBare: 0}},
		{kase: "sqlite/exec", subject: "dlock exec", figures: figures{pairsPerS: 50, p50: 21000, p99: 30000, aboveBare: 20}},
		{kase: "sqlite/held", subject: "dlock", figures: figures{leaseCount: 2000}},
	}
	for _, at := range []float64{1, 2} {
		for _, subject := range []string{"raw", "dlock"} {
			all = append(all, result{kase: "redis/grow-crowd", subject: subject, figures: figures{point: at, pairsPerS: 100 * at}})
		}
		all = append(all,
			result{kase: "memory/grow-held", subject: "dlock", figures: figures{point: at, pairsPerS: 7 * at}},
			result{kase: "sqlite/grow-held", subject: "dlock", figures: figures{point: at, pairsPerS: 5 * at}})
	}
	return append(all, result{kase: "redis/grow-crowd", subject: "redsync", failure: "<gone>"})
}

func TestPageShowsEveryCase(t *testing.T) {
	p := presented(sample(), "today")
	var titles []string
	for _, s := range p.Sections {
		for _, c := range s.Charts {
			titles = append(titles, s.Title+" "+c.Title)
		}
	}
	want := []string{"Alone redis", "Hot sqlite", "Hot redis", "Readers redis", "Command line sqlite", "Held sqlite", "Growth: a hot lock redis", "Growth: locks held dlock"}
	if !slices.Equal(titles, want) {
		t.Errorf("the charts are %q, want %q", titles, want)
	}
	cell := page.Cell{Rate: "20,000/s", Peer: "0.80× redislock", Floor: "0.66× the floor", Behind: true}
	if len(p.Rows) != 2 || p.Rows[1].Cells[0] != cell {
		t.Errorf("the overview is %+v, want two rows, the second of which begins with %+v", p.Rows, cell)
	}
}

func TestBarsAndCurvesSayWhatWasMeasured(t *testing.T) {
	p := presented(sample(), "today")
	bars := p.Sections[0].Charts[0].Chart.(page.Bars)
	var subjects []string
	for _, b := range bars {
		subjects = append(subjects, b.Subject)
	}
	if got := strings.Join(subjects, " "); got != "raw redislock dlock redsync" {
		t.Errorf("the order of the bars is %s, want the best first and the failed one last", got)
	}
	if b := bars[2]; b.Note != "0.66× floor · 0.80× peer" || b.Low != 19000 || b.High != 21000 {
		t.Errorf("the bar of dlock is %+v, want its ratios and its spread", b)
	}
	for i, want := range []string{unequal, "p99 0.7 ms"} {
		if b := p.Sections[1].Charts[i].Chart.(page.Bars)[0]; b.Note != want {
			t.Errorf("the bar of dlock under contention has the note %q, want %q", b.Note, want)
		}
	}
	if b := p.Sections[2].Charts[0].Chart.(page.Bars)[0]; b.Note != "6.00× peer · 12.00× exclusive · p99 8.40 ms" {
		t.Errorf("the bar of dlock's readers has the note %q, want the ratio to the exclusive lock", b.Note)
	}
	if b := p.Sections[3].Charts[0].Chart.(page.Bars)[1]; b.Shown != "21.0 ms" || b.Note != "20.0 ms above the bare command" {
		t.Errorf("the bar of dlock exec is %+v, want its time", b)
	}
	if lines := p.Sections[5].Charts[0].Chart.(page.Curves).Lines; len(lines) != 3 || len(lines[1].Points) != 2 || lines[2].Failure == "" {
		t.Errorf("the curves are %+v, want two with two points and one that failed", lines)
	}
	if lines := p.Sections[6].Charts[0].Chart.(page.Curves).Lines; len(lines) != 2 || lines[1].Subject != "sqlite" {
		t.Errorf("the curves are %+v, want one for each store", lines)
	}
}

func TestResultsAreReadAgain(t *testing.T) {
	var file bytes.Buffer
	if err := printJSON(&file, sample()); err != nil {
		t.Fatal(err)
	}
	again, err := readJSON(&file)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := presented(again, ""), presented(sample(), ""); !reflect.DeepEqual(got, want) {
		t.Errorf("the page of the file is\n%+v, want\n%+v", got, want)
	}
	for _, broken := range []string{"{", `{"subject":"dlock"}`} {
		if _, err := readJSON(strings.NewReader(broken)); err == nil {
			t.Errorf("%s was read", broken)
		}
	}
}

func TestDocsAreWritten(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "performance.md")
	before := "# Title\n<!-- rates: written by test/bench --docs -->\nold\n<!-- end -->\nbetween\n" +
		"<!-- modes: written by test/bench --docs -->\n<!-- end -->\n" +
		"<!-- commands: written by test/bench --docs -->\n<!-- end -->\nlast\n"
	if err := os.WriteFile(path, []byte(before), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time replaces what the first time wrote
		if err := writeDocs(dir, sample()); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want := "# Title\n<!-- rates: written by test/bench --docs -->\n" + tableHeaders[ratesTable] +
		"| alone | redis | 20,000 | 19,000 to 21,000 | 0.66 | 0.80 × redislock | – |\n" +
		"| hot | sqlite | 300 | – | – | – | unequal shares |\n" +
		"| hot | redis | 150,000 | – | – | – | 0.7 ms |\n<!-- end -->\nbetween\n" +
		"<!-- modes: written by test/bench --docs -->\n" + tableHeaders[modesTable] +
		"| readers | redis | 9,000 | 8,000 to 9,500 | 12.00 | 6.00 × redisson | 8.4 ms |\n<!-- end -->\n" +
		"<!-- commands: written by test/bench --docs -->\n" + tableHeaders[commandsTable] +
		"| sqlite | `true` | 1.0 ms | 0.0 ms |\n| sqlite | `dlock exec` | 21.0 ms | 20.0 ms |\n<!-- end -->\nlast\n"
	if string(text) != want {
		t.Errorf("the document is\n%s\nwant\n%s", text, want)
	}
	for _, name := range []string{"rates.svg", "growth.svg"} {
		if picture, err := os.ReadFile(filepath.Join(dir, "images", name)); err != nil || !bytes.HasPrefix(picture, []byte("<svg ")) {
			t.Errorf("%s: %.20s, %v", name, picture, err)
		}
	}
	if err := os.WriteFile(path, []byte("# Title\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := writeDocs(dir, sample()); err == nil {
		t.Error("a document without a place for the tables was written")
	}
}

// A table of the document that was written by hand, or by an older program, is
// found here.
func TestDocumentHasTheTablesOfTheProgram(t *testing.T) {
	text, err := os.ReadFile("../../docs/performance.md")
	if err != nil {
		t.Fatal(err)
	}
	const amount = `\d[\d,.]*`
	stores := "(" + strings.Join(storeNames(), "|") + ")"
	rates := ` \| ` + stores + ` \| ` + amount + ` \| (–|` + amount + ` to ` + amount + `) \| (–|\d+\.\d\d) \| (–|\d+\.\d\d × \S+) \| (–|\d+\.\d ms|` + unequal + `) \|`
	for name, row := range map[string]string{
		ratesTable:    `\| (alone|many|contended|hot)` + rates,
		modesTable:    `\| (readers|permits)` + rates,
		commandsTable: `\| ` + stores + " \\| `[^`|]+` \\| \\d+\\.\\d ms \\| -?\\d+\\.\\d ms \\|",
	} {
		found := tableIn(name).FindStringSubmatch(string(text))
		if found == nil {
			t.Errorf("docs/performance.md has no table %s", name)
			continue
		}
		rows, ok := strings.CutPrefix(found[2], tableHeaders[name])
		if !ok || rows == "" {
			t.Errorf("the table %s does not begin with the program's header, or has no rows:\n%s", name, found[2])
		}
		form := regexp.MustCompile("^" + row + "$")
		for line := range strings.Lines(rows) {
			if !form.MatchString(strings.TrimSuffix(line, "\n")) {
				t.Errorf("the table %s has the row %q, which the program does not write", name, line)
			}
		}
	}
	for _, image := range []string{"images/rates.svg", "images/growth.svg"} {
		if !strings.Contains(string(text), "("+image+")") {
			t.Errorf("docs/performance.md does not show %s", image)
		}
	}
}

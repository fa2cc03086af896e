package main

import (
	"bytes"
	"encoding/json"
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
		{kase: "redis/readers", subject: "dlock", figures: figures{
			pairsPerS: 9000, lowestRate: 8000, bestRate: 9500, rateOfPeer: 6, rateOfExclusive: 12, p99Wait: 8.4, jain: 1,
		}},
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

func TestPageShowsWhatWasMeasured(t *testing.T) {
	p := presented(sample(), "today")
	charts := make(map[string]page.Chart)
	var titles []string
	for _, s := range p.Sections {
		for _, c := range s.Charts {
			titles = append(titles, s.Title+" "+c.Title)
			charts[s.Title+" "+c.Title] = c.Chart
		}
	}
	want := []string{
		"Alone redis", "Hot sqlite", "Hot redis", "Readers redis", "Held sqlite", "Command line sqlite",
		"Growth: a hot lock redis", "Growth: locks held dlock",
	}
	if !slices.Equal(titles, want) {
		t.Errorf("the charts are %q, want %q", titles, want)
	}
	alone := charts["Alone redis"].(page.Bars)
	var subjects []string
	for _, b := range alone {
		subjects = append(subjects, b.Subject)
	}
	if got := strings.Join(subjects, " "); got != "raw redislock dlock redsync" {
		t.Errorf("the order of the bars is %s, want the best first and the failed one last", got)
	}
	if b := alone[2]; b.Low != 19000 || b.High != 21000 {
		t.Errorf("the bar of dlock is %+v, want its spread", b)
	}
	for _, test := range []struct {
		chart string
		bar   int
		note  string
	}{
		{"Alone redis", 2, "0.66× floor · 0.80× peer"},
		{"Hot sqlite", 0, unequal},
		{"Hot redis", 0, "p99 0.7 ms"},
		{"Readers redis", 0, "6.00× peer · 12.00× exclusive · p99 8.4 ms"},
		{"Command line sqlite", 1, "20.0 ms above the bare command"},
	} {
		if b := charts[test.chart].(page.Bars)[test.bar]; b.Note != test.note {
			t.Errorf("%s: the note of %s is %q, want %q", test.chart, b.Subject, b.Note, test.note)
		}
	}
	lines := charts["Growth: a hot lock redis"].(page.Curves).Lines
	if len(lines) != 3 || len(lines[1].Points) != 2 || lines[2].Failure == "" {
		t.Errorf("the curves are %+v, want two with two points and one that failed", lines)
	}
	if lines := charts["Growth: locks held dlock"].(page.Curves).Lines; len(lines) != 2 || lines[1].Subject != "sqlite" {
		t.Errorf("the curves are %+v, want one for each store", lines)
	}
}

func TestResultsAreReadAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "results")
	var file bytes.Buffer
	if err := sample().printJSON(&file); err != nil {
		t.Fatal(err)
	}
	var line map[string]any
	if err := json.NewDecoder(bytes.NewReader(file.Bytes())).Decode(&line); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"case": "redis/solo", "subject": "raw", "pairs_per_s": 30000.0, "pairs_per_s_min": 29000.0, "pairs_per_s_max": 31000.0, "rate_of_floor": 1.0,
		"p50_us": nil, "p99_us": nil, "p99_wait_ms": nil, "jain": nil, "commands_per_pair": nil, // the fixed figures
	}
	if !reflect.DeepEqual(line, want) {
		t.Errorf("the first line is %v, want %v", line, want)
	}
	for content, ok := range map[string]bool{file.String(): true, "{": false, `{"subject":"dlock"}`: false} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		again, err := readJSON(path)
		if (err == nil) != ok {
			t.Errorf("%.40s: %v", content, err)
		}
		if ok && !reflect.DeepEqual(presented(again, ""), presented(sample(), "")) {
			t.Errorf("the page of the file is\n%+v, want\n%+v", presented(again, ""), presented(sample(), ""))
		}
	}
}

func TestTableComparesWithFloorAndPeer(t *testing.T) {
	rates := func(all ...float64) (rounds []figures) {
		for _, rate := range all {
			rounds = append(rounds, figures{pairsPerS: rate})
		}
		return rounds
	}
	results := collection{
		{"redis/solo", "raw", figures{pairsPerS: 300}, rates(270, 440, 250), ""},
		{"redis/solo", "bare", figures{pairsPerS: 200}, rates(180, 220, 200), ""},
		{"redis/solo", "dlock", figures{pairsPerS: 100, lowestRate: 90, bestRate: 110}, rates(90, 110, 100), ""},
		{"redis/solo", "redsync", figures{pairsPerS: 50}, rates(30, 50, 80), ""},
		{"redis/solo", "redsync/redlock", figures{pairsPerS: 1000}, rates(1000, 1000, 1000), ""},
		{"redis/solo", "absent", nil, nil, "no such server"},
	}
	results[:5].compareRates()
	var out bytes.Buffer
	if err := results.printTable(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"  absent: failed: no such server\n", "redis/solo  pairs per s  rate of floor  rate of best peer",
		"dlock          100          0.333               2.20", "  dlock: 0.50 of bare's rate, 2.20 of redsync's rate, pairs_per_s_max 110,",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the table does not show %q:\n%s", want, out.String())
		}
	}
}

func TestDocsAreWritten(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "performance.md")
	var before, want strings.Builder
	for i, rows := range []string{
		"| alone | redis | 20,000 | 19,000 to 21,000 | 0.66 | 0.80 × redislock | – |\n" +
			"| hot | sqlite | 300 | – | – | – | unequal shares |\n" +
			"| hot | redis | 150,000 | – | – | – | 0.7 ms |\n",
		"| readers | redis | 9,000 | 8,000 to 9,500 | 12.00 | 6.00 × redisson | 8.4 ms |\n",
		"| sqlite | `true` | 1.0 ms | 0.0 ms |\n| sqlite | `dlock exec` | 21.0 ms | 20.0 ms |\n",
	} {
		start, end := "# Title\n<!-- "+tables[i].name+": written by test/bench --docs -->\n", "<!-- end -->\nlast\n"
		before.WriteString(start + "old\n" + end)
		want.WriteString(start + tables[i].head() + rows + end)
	}
	if err := os.WriteFile(path, []byte(before.String()), 0o600); err != nil {
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
	if string(text) != want.String() {
		t.Errorf("the document is\n%s\nwant\n%s", text, want.String())
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

// head is how a table begins in the document.
func (t table) head() string {
	return strings.TrimSuffix(t.markdown([][]string{t.header, {"x"}}), "| x |\n")
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
	for i, row := range []string{
		`\| (alone|many|contended|hot)` + rates,
		`\| (readers|permits)` + rates,
		`\| ` + stores + " \\| `[^`|]+` \\| \\d+\\.\\d ms \\| -?\\d+\\.\\d ms \\|",
	} {
		table := tables[i]
		form := regexp.MustCompile("^" + regexp.QuoteMeta(table.head()) + "(" + row + "\n)+$")
		if found := table.place().FindStringSubmatch(string(text)); found == nil || !form.MatchString(found[1]) {
			t.Errorf("docs/performance.md does not have the table %s as the program writes it: %q", table.name, found)
		}
	}
	for _, image := range []string{"images/rates.svg", "images/growth.svg"} {
		if !strings.Contains(string(text), "("+image+")") {
			t.Errorf("docs/performance.md does not show %s", image)
		}
	}
}

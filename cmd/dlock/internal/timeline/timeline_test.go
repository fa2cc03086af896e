package timeline

import (
	"encoding/xml"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"
)

func span(lane, from, to int) Span {
	return Span{Lane: lane, From: time.Duration(from), To: time.Duration(to), Label: "<&>"}
}

func TestOverlaps(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		spans []Span
		want  []Interval
		most  int
	}{
		{"nobody", nil, nil, 0},
		{"one after the other", []Span{span(0, 0, 10), span(1, 10, 20), span(0, 20, 30)}, nil, 1},
		{"two of different lanes", []Span{span(0, 0, 10), span(1, 5, 20)}, []Interval{{5, 10}}, 2},
		{"two of one lane", []Span{span(0, 0, 10), span(0, 5, 20)}, []Interval{{5, 10}}, 2},
		{"one within another", []Span{span(0, 0, 30), span(1, 10, 20)}, []Interval{{10, 20}}, 2},
		{"three", []Span{span(0, 0, 30), span(1, 10, 20), span(2, 15, 40)}, []Interval{{10, 30}}, 3},
		{"twice", []Span{span(0, 0, 100), span(1, 10, 20), span(2, 30, 40)}, []Interval{{10, 20}, {30, 40}}, 2},
		{"one relieves another beside a third", []Span{span(0, 0, 100), span(1, 10, 20), span(2, 20, 30)}, []Interval{{10, 30}}, 2},
		{"no time at all", []Span{span(0, 0, 10), span(1, 5, 5)}, nil, 1},
		{"in any order", []Span{span(1, 5, 20), span(0, 0, 10)}, []Interval{{5, 10}}, 2},
	} {
		if got := Overlaps(c.spans); !slices.Equal(got, c.want) {
			t.Errorf("%s: overlaps %v, want %v", c.name, got, c.want)
		}
		if got := Most(c.spans); got != c.most {
			t.Errorf("%s: %d at once, want %d", c.name, got, c.most)
		}
	}
}

func TestCommonIsThePartThatOverlaps(t *testing.T) {
	t.Parallel()
	overlaps := []Interval{{10, 20}, {30, 40}, {50, 60}}
	for _, c := range []struct {
		span Span
		want []Interval
	}{
		{span(0, 0, 10), nil},
		{span(0, 20, 30), nil},
		{span(0, 12, 15), []Interval{{12, 15}}},
		{span(0, 15, 35), []Interval{{15, 20}, {30, 35}}},
		{span(0, 0, 100), overlaps},
		{span(0, 60, 70), nil},
	} {
		if got := c.span.common(overlaps); !slices.Equal(got, c.want) {
			t.Errorf("%v: %v, want %v", c.span, got, c.want)
		}
	}
}

func TestStackedSpansDoNotMeet(t *testing.T) {
	t.Parallel()
	rows, height := stack([]Span{span(0, 0, 10), span(0, 5, 15), span(0, 10, 20), span(0, 12, 14)})
	if !slices.Equal(rows, []int{0, 1, 0, 2}) || height != 3 {
		t.Errorf("rows %v of %d", rows, height)
	}
}

// runs are one with an overlap, and one without.
func runs() []Run {
	return []Run{
		{
			Name: "bad", Caption: "a <caption>", Verdict: "-1 left\n3 sold", Bad: true, Lanes: []string{"one", "two"}, Stock: 2,
			Spans: []Span{span(0, 0, 10), span(1, 5, 20), span(0, 25, 30)}, Sales: []time.Duration{9, 19, 29}, Length: 30,
		},
		{
			Name: "good", Lanes: []string{"one", "two"}, Stock: 2,
			Spans: []Span{span(0, 0, 10), span(1, 10, 20)}, Sales: []time.Duration{9, 19}, Length: 20,
		},
	}
}

func beforeLegend(drawn string) string {
	before, _, _ := strings.Cut(drawn, "alone inside")
	return before
}

func TestOnlyOverlapsAreRed(t *testing.T) {
	t.Parallel()
	for i, run := range runs() {
		run.Bad, run.Sales = false, nil // which are red too
		p := picture{left: 10, plot: 100, right: 10, lane: 5, curve: 20, detail: i == 0}
		drawn := beforeLegend(p.draw([]Run{run}))
		if got, want := strings.Contains(drawn, red), i == 0; got != want {
			t.Errorf("run %q has red: %v, want %v\n%s", run.Name, got, want, drawn)
		}
		if !strings.Contains(drawn, green) {
			t.Errorf("run %q has nobody alone:\n%s", run.Name, drawn)
		}
	}
}

func TestStockBelowZeroIsRed(t *testing.T) {
	t.Parallel()
	for i, run := range runs() {
		run.Bad, run.Spans = false, nil
		drawn := beforeLegend(SVG([]Run{run}))
		if got, want := strings.Contains(drawn, red), i == 0; got != want {
			t.Errorf("run %q has red: %v, want %v\n%s", run.Name, got, want, drawn)
		}
	}
}

func TestPicturesAreWellFormed(t *testing.T) {
	t.Parallel()
	page := HTML(Page{Title: "a <title>", Intro: []string{"1 < 2"}, Header: []string{"x"}, Table: [][]string{{"<"}, {"&"}}, Runs: runs()})
	texts := []string{SVG(runs())}
	for _, part := range strings.Split(page, "<svg ")[1:] {
		svg, _, found := strings.Cut(part, "</svg>")
		if !found {
			t.Fatal("a drawing does not end")
		}
		texts = append(texts, "<svg "+svg+"</svg>")
	}
	if len(texts) != 3 {
		t.Errorf("%d drawings, want one, and two in the page", len(texts))
	}
	for _, text := range texts {
		for decoder := xml.NewDecoder(strings.NewReader(text)); ; {
			_, err := decoder.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%v in %s", err, text)
			}
		}
	}
	for _, raw := range []string{"a <title>", "1 < 2", "<&>", "a <caption>"} {
		if strings.Contains(page, raw) {
			t.Errorf("%q is not escaped", raw)
		}
	}
}

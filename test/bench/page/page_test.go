package page

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"testing"
)

// hostile is a text that would end an element or an attribute.
const hostile = `<script>alert("1")</script>&'`

// wellFormed parses a picture.
func wellFormed(t *testing.T, svg string) {
	t.Helper()
	for d := xml.NewDecoder(strings.NewReader(svg)); ; {
		_, err := d.Token()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatalf("%v in %s", err, svg)
		}
	}
}

func TestPageEscapesTexts(t *testing.T) {
	for _, chart := range []Chart{
		Bars{{Subject: hostile, Value: 1, Shown: hostile, Note: hostile}, {Subject: hostile, Failure: hostile}},
		Curves{X: hostile, Y: hostile, Lines: []Line{{Subject: hostile, Points: []Point{{1, 1}}}}},
	} {
		drawn := Drawn{hostile, chart, [][]string{{hostile}}}
		var out bytes.Buffer
		err := Page{hostile, []string{hostile}, [][][]string{{{hostile}, {hostile}}}, []Section{{hostile, hostile, []Drawn{drawn}}}}.Write(&out)
		if err != nil {
			t.Fatal(err)
		}
		text := out.String()
		if strings.Contains(text, "<script") || strings.Contains(text, `"1"`) {
			t.Errorf("the page contains a text that is not escaped:\n%s", text)
		}
		if !strings.Contains(text, "&lt;script&gt;") {
			t.Errorf("the page does not contain the text:\n%s", text)
		}
		if found := regexp.MustCompile(`(?i)(src|href)="[^#]|url\(|@import|https?:`).FindString(text); found != "" {
			t.Errorf("the page refers to another file: %q", found)
		}
		wellFormed(t, Picture{drawn}.SVG())
	}
}

var number = regexp.MustCompile(`NaN|Inf|%!`)

// Coordinates are numbers and inside the picture, whatever was measured.
func TestChartsOfFewPoints(t *testing.T) {
	for name, lines := range map[string][]Line{
		"none":      nil,
		"no points": {{Subject: "redsync", Failure: "no such server"}},
		"one":       {{Subject: "dlock", Role: Dlock, Points: []Point{{1, 500}}}},
		"zero":      {{Subject: "dlock", Role: Dlock, Points: []Point{{1, 0}, {2, 7}}}},
		"equal":     {{Subject: "dlock", Role: Dlock, Points: []Point{{1, 1000}, {10, 1000}, {100, 1000}}}},
	} {
		text := Picture{{Title: name, Chart: Curves{X: "waiters", Y: "pairs/s", Lines: lines}}}.SVG()
		wellFormed(t, text)
		if number.MatchString(text) {
			t.Errorf("%s: a coordinate is not a number:\n%s", name, text)
		}
		drawn := 0
		for _, line := range lines {
			for _, p := range line.Points {
				if p.Y > 0 {
					drawn++
				}
			}
			if !strings.Contains(text, line.Subject) {
				t.Errorf("%s: %s is not in the legend", name, line.Subject)
			}
			if failed := strings.Contains(text, line.Subject+" (failed)"); failed != (line.Failure != "") {
				t.Errorf("%s: the legend says that %s failed: %v", name, line.Subject, failed)
			}
		}
		circles := regexp.MustCompile(`cx="(\S+)" cy="(\S+)"`).FindAllStringSubmatch(text, -1)
		if len(circles) != drawn {
			t.Errorf("%s: %d points are drawn, want %d", name, len(circles), drawn)
		}
		for _, circle := range circles {
			var x, y float64
			if _, err := fmt.Sscan(circle[1]+" "+circle[2], &x, &y); err != nil || x < 0 || x > Width || y < 0 || y > 200 {
				t.Errorf("%s: a point is at %v, %v (%v)", name, x, y, err)
			}
		}
	}
}

func TestBarsShowFailureAndSpread(t *testing.T) {
	text, height := Bars{
		{Subject: "dlock", Role: Dlock, Value: 50, Low: 25, High: 100, Shown: "50/s"},
		{Subject: "redsync", Failure: "the server at 127.0.0.1:6379 closed the connection without an answer"},
		{Subject: "none", Value: 0, Shown: "0/s"},
	}.Draw()
	if height <= 0 || number.MatchString(text) {
		t.Errorf("height %v, elements:\n%s", height, text)
	}
	for _, want := range []string{
		`width="179.0" height="9" fill="` + colour(Dlock, 0), // half of the scale, whose end is the best round
		`M89.5 20.5H358.0`, // the spread, from a quarter of the scale to its end
		"failed: the server at 127.0.0.1:6379 closed…",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("there is no %q in:\n%s", want, text)
		}
	}
	if all, _ := (Bars{{Subject: "redsync", Failure: "gone"}}).Draw(); number.MatchString(all) || !strings.Contains(all, "failed: gone") {
		t.Errorf("a chart of failures only: %s", all)
	}
}

func TestShort(t *testing.T) {
	for v, want := range map[float64]string{0.5: "0.5", 1: "1", 64: "64", 999.6: "1k", 12345: "12.3k", 1e5: "100k", 1e6: "1M", 3e9: "3G"} {
		if got := Short(v); got != want {
			t.Errorf("%v is shown as %s, want %s", v, got, want)
		}
	}
}

package page

import (
	"encoding/xml"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock/lab/stage"
	"github.com/dlock-go/dlock/lab/subject"
)

func hold(process string, from, to time.Duration) *stage.Hold {
	return &stage.Hold{Process: process, From: from, To: to, Text: "<&>"}
}

// stories are one with a result with an overlap and a stock that falls below zero, and with one without.
func stories() []Story {
	bad := &stage.Record{Processes: []string{"1", "2"}, Holds: []*stage.Hold{hold("1", 0, 10), hold("2", 5, 20), hold("1", 5, 30)},
		Stock: &stage.Stock{Of: "<in stock>", Begin: 2, Falls: []time.Duration{9, 19, 29}}}
	good := &stage.Record{Processes: []string{"1", "2"}, Holds: []*stage.Hold{hold("1", 0, 10), hold("2", 10, 20)},
		Stock: &stage.Stock{Begin: 2, Falls: []time.Duration{9, 19}}}
	result := func(r *stage.Record) Result {
		return Result{Result: &stage.Result{Subject: "a <subject>", Role: subject.Ours, Verdict: stage.Held, Record: r,
			Figures: []stage.Figure{{Name: "final_stock", Value: -1}, {Name: "hidden", Value: 7, Detail: true}}}, About: "1 < 2"}
	}
	return []Story{{Name: "name", Title: "a <title>", Tells: "tells", Results: []Result{result(bad), result(good)}}}
}

// TestOnlyWhatIsWrongIsRed: overlaps, and what is below zero.
func TestOnlyWhatIsWrongIsRed(t *testing.T) {
	t.Parallel()
	for i, r := range stories()[0].Results {
		for _, detail := range []bool{true, false} {
			drawn, _ := draw(r.Record, detail)
			for _, class := range []string{"overlap", "short"} {
				if got, want := strings.Contains(drawn, `class="`+class+`"`), i == 0; got != want {
					t.Errorf("result %d has %s: %v, want %v\n%s", i, class, got, want, drawn)
				}
			}
			if strings.Contains(drawn, "process 1, ") != detail {
				t.Errorf("the texts of holds are for a page only: %s", drawn)
			}
		}
	}
}

func TestStackedHoldsDoNotMeet(t *testing.T) {
	t.Parallel()
	rows, height := stack([]*stage.Hold{hold("1", 0, 10), hold("1", 5, 15), hold("1", 10, 20), hold("1", 12, 14)})
	if !slices.Equal(rows, []int{0, 1, 0, 2}) || height != 3 {
		t.Errorf("rows %v of %d", rows, height)
	}
}

func TestPicturesAreWellFormed(t *testing.T) {
	t.Parallel()
	var page strings.Builder
	if err := (Page{Stories: stories()}).Write(&page); err != nil {
		t.Fatal(err)
	}
	texts := []string{Picture(stories()...)}
	for _, part := range strings.Split(page.String(), "<svg ")[1:] {
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
	for _, raw := range []string{"a <title>", "1 < 2", "<&>", "a <subject>", "<in stock>", "hidden"} {
		if strings.Contains(page.String(), raw) {
			t.Errorf("%q is not escaped, or shown", raw)
		}
	}
	if !strings.Contains(page.String(), "final stock -1") {
		t.Error("the figures are not shown")
	}
}

//go:build unix

package main

import (
	"regexp"
	"strings"
	"testing"

	"github.com/dlock-go/dlock/cmd/dlock/internal/demo"
)

// A holder that is stopped for longer than its TTL oversells with a lock alone, and is
// refused by the fence.
func TestDemoPause(t *testing.T) {
	b := demoBench(t)
	r := b.demo(0, "pause", "--ttl", "1", "--json", "--html", "page.html", "--svg", "picture.svg")
	runs := decodeLines[demo.PauseJSON](t, r.stdout)
	if len(runs) != 2 || runs[0].Guard != "dlock" || runs[1].Guard != "fenced" {
		t.Fatalf("want a line for dlock and one for fenced:\n%s", r.stdout)
	}
	for _, run := range runs {
		if run.Stock != 1 || run.TTLMS != 1000 || run.Tokens[1] <= run.Tokens[0] {
			t.Errorf("%+v; want one in stock, and tokens that rise", run)
		}
		if run.PausedMS < 500 { // the rest of the TTL, after acquiring and reading
			t.Errorf("%s: the pause was %d ms only", run.Guard, run.PausedMS)
		}
	}
	if alone := runs[0]; alone.Sold != 2 || alone.FinalStock != -1 || alone.Refused != 0 {
		t.Errorf("the lock alone: %+v; want that both have sold the last one", alone)
	}
	if fenced := runs[1]; fenced.Sold != 1 || fenced.FinalStock != 0 || fenced.Refused != 1 {
		t.Errorf("fenced: %+v; want that the late write was refused", fenced)
	}
	page := b.read("page.html")
	checkSelfContained(t, page)
	charts := strings.Split(page, "<h2>")[1:]
	if len(charts) != 2 {
		t.Fatalf("the page has %d charts", len(charts))
	}
	contains(t, "the chart of dlock", charts[0], "process 1 is stopped", "process 1 writes without its lock and sells one", "\u22121 left")
	contains(t, "the chart of fenced", charts[1], "process 1 writes without its lock and is refused", "0 left")
	contains(t, "the picture", b.read("picture.svg"), "<svg ", ">dlock<", ">fenced<", ">stopped<")
}

func TestDemoPauseTellsTheStory(t *testing.T) {
	b := demoBench(t)
	r := b.demo(0, "pause", "--ttl", "0.6", "--store", "sqlite://./locks.db")
	contains(t, "stdout", r.stdout, "\n  ", "process 1 acquires the lock with token ", "process 1 is stopped just before it writes", "process 2 acquires the lock, which has expired",
		"process 1 goes on where it was (SIGCONT), and sells one that is not there", "and is refused: the row has seen token ", "GUARD   SOLD  FINAL STOCK  REFUSED  PAUSED\n")
	contains(t, "stderr", r.stderr, "1 in stock, 2 processes, a TTL of 600ms", "the lock is in sqlite://")
	if r := b.must(0, "ls", "--store", "sqlite://./locks.db"); r.stdout != "" {
		t.Errorf("a lock is left: %s", r.stdout)
	}
}

func TestDemoTokenPage(t *testing.T) {
	b := demoBench(t)
	b.demo(0, "token", "--processes", "4", "--calls", "5", "--html", "page.html", "--svg", "picture.svg")
	page := b.read("page.html")
	checkSelfContained(t, page)
	charts := strings.Split(page, "<h2>")[1:]
	if len(charts) != 2 || !strings.HasPrefix(charts[0], "none") || !strings.HasPrefix(charts[1], "dlock") {
		t.Fatalf("the page has %d charts", len(charts))
	}
	if fetches := strings.Count(charts[0], "fetched a token"); fetches < 2 {
		t.Errorf("without a lock %d fetches are drawn", fetches)
	}
	if fetches, found := strings.Count(charts[1], "fetched a token"), strings.Count(charts[1], "found a token"); fetches != 1 || found != 3 {
		t.Errorf("with a lock %d fetches and %d finds are drawn, want 1 and 3", fetches, found)
	}
	if strings.Contains(charts[1], "#e5484d") {
		t.Error("with a lock the chart has red")
	}
	contains(t, "the page", page, "calls that were taken", "0 failed")
	contains(t, "the picture", b.read("picture.svg"), "<svg ", ">none<", ">dlock<", "0 failed")
}

// checkSelfContained expects that a page needs nothing else.
func checkSelfContained(t *testing.T, page string) {
	t.Helper()
	if found := regexp.MustCompile(`(?i)<script|<link|<img|src=|href=|url\(|@import`).FindAllString(page, -1); found != nil {
		t.Errorf("the page is not self-contained: %q", found)
	}
}

//go:build unix

package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock/cmd/dlock/internal/demo"
)

// demoLimit is for tests that fail only: a busy machine takes longer than half a minute.
const demoLimit = 3 * time.Minute

// demoBench is a bench whose temporary files can be counted, with the store that a demo
// makes for itself.
func demoBench(t *testing.T) *bench {
	t.Helper()
	b := newBench(t)
	if err := os.Mkdir(b.path("tmp"), 0o700); err != nil {
		t.Fatal(err)
	}
	b.env = slices.DeleteFunc(b.env, func(entry string) bool { return strings.HasPrefix(entry, storeVariable+"=") })
	b.env = append(b.env, "TMPDIR="+b.path("tmp"))
	return b
}

// demo runs a demo to its end.
func (b *bench) demo(status int, args ...string) result {
	b.t.Helper()
	cmd := exec.Command(dlockBinary, append([]string{"demo"}, args...)...)
	cmd.Dir, cmd.Env = b.folder, b.env
	r := runWithin(b.t, cmd, demoLimit)
	if r.status != status {
		b.t.Fatalf("dlock demo %q: exit status %d, expected %d\nstdout: %s\nstderr: %s", args, r.status, status, r.stdout, r.stderr)
	}
	b.cleanedUp()
	return r
}

// cleanedUp expects that nothing is left of a demo.
func (b *bench) cleanedUp() {
	b.t.Helper()
	left, err := os.ReadDir(b.path("tmp"))
	if err != nil || len(left) > 0 {
		b.t.Errorf("left in the temporary folder: %v, %v", left, err)
	}
	if left := demoProcessesIn(b.path("tmp")); len(left) > 0 {
		b.t.Errorf("processes that are left: %q", left)
	}
}

// demoProcessesIn are the processes that have a temporary folder.
func demoProcessesIn(folder string) (found []string) {
	environments, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, path := range environments {
		environment, _ := os.ReadFile(path) // it may be gone
		if bytes.Contains(environment, []byte("TMPDIR="+folder+"\x00")) {
			command, _ := os.ReadFile(filepath.Join(filepath.Dir(path), "cmdline"))
			found = append(found, strings.ReplaceAll(string(command), "\x00", " "))
		}
	}
	return found
}

func decodeLines[T any](t *testing.T, text string) (all []T) {
	t.Helper()
	for decoder := json.NewDecoder(strings.NewReader(text)); decoder.More(); {
		var one T
		if err := decoder.Decode(&one); err != nil {
			t.Fatalf("%v in %s", err, text)
		}
		all = append(all, one)
	}
	return all
}

func TestDemoOversell(t *testing.T) {
	b := demoBench(t)
	begun := time.Now()
	r := b.demo(0, "oversell", "--json", "--html", "page.html", "--svg", "picture.svg")
	t.Logf("it took %v", time.Since(begun))
	checkOversell(t, r.stdout, 500, 40)
	contains(t, "stderr", r.stderr, "none: ", "local: ", "dlock: 40 sold, final stock 0", "fenced: ")
	if strings.Contains(r.stderr, "\x1b") {
		t.Errorf("stderr that is no terminal has escapes: %q", r.stderr)
	}
	checkPage(t, b.read("page.html"))
	picture := b.read("picture.svg")
	contains(t, "the picture", picture, "<svg ", ">none<", ">local<", ">dlock<", ">fenced<", "0 left", "\u2212")
	if len(picture) > 60<<10 {
		t.Errorf("the picture has %d bytes, which is too much for a document", len(picture))
	}
}

func (b *bench) read(name string) string {
	b.t.Helper()
	text, err := os.ReadFile(b.path(name))
	if err != nil {
		b.t.Fatal(err)
	}
	return string(text)
}

// checkOversell checks the lines of --json.
func checkOversell(t *testing.T, lines string, requests, stock int) {
	t.Helper()
	runs := decodeLines[demo.OversellJSON](t, lines)
	if len(runs) != 4 {
		t.Fatalf("%d lines, want one for each guard:\n%s", len(runs), lines)
	}
	for i, guard := range demo.Guards {
		run := runs[i]
		if run.Guard != guard || run.Requests != requests || run.Stock != stock || run.Refused != 0 {
			t.Errorf("run %d: %+v", i, run)
		}
		if run.FinalStock != stock-run.Sold {
			t.Errorf("%s: %d are left of %d after %d were sold", guard, run.FinalStock, stock, run.Sold)
		}
		if run.Seconds <= 0 || run.RequestsPerS <= 0 || run.WaitP50MS <= 0 || run.WaitP99MS < run.WaitP50MS {
			t.Errorf("%s: measures that cannot be: %+v", guard, run)
		}
		switch {
		case guard.Shared() && (run.FinalStock != 0 || run.Sold != stock || run.AtOnce != 1):
			t.Errorf("%s: %+v; want that all was sold, and nothing more", guard, run)
		case !guard.Shared() && (run.FinalStock >= 0 || run.AtOnce < 2):
			t.Errorf("%s: %+v; want that more was sold than was there", guard, run)
		}
	}
	line, _, _ := strings.Cut(lines, "\n")
	checkOversellFields(t, line)
}

func checkOversellFields(t *testing.T, line string) {
	t.Helper()
	var raw map[string]any
	decode(t, line, &raw)
	for _, key := range []string{"guard", "requests", "sold", "final_stock", "stock", "at_once", "refused", "processes", "clients",
		"seconds", "requests_per_s", "wait_p50_ms", "wait_p99_ms"} {
		if _, ok := raw[key]; !ok {
			t.Errorf("%s is missing: %s", key, line)
		}
		delete(raw, key)
	}
	if len(raw) > 0 {
		t.Errorf("what nobody has heard of: %v", raw)
	}
}

// checkPage checks that a page needs nothing else, and where it is red.
func checkPage(t *testing.T, page string) {
	t.Helper()
	checkSelfContained(t, page)
	charts := strings.Split(page, "<h2>")[1:]
	if len(charts) != 4 {
		t.Fatalf("the page has %d charts", len(charts))
	}
	const red = "#e5484d"
	for i, guard := range demo.Guards {
		if !strings.HasPrefix(charts[i], string(guard)) {
			t.Errorf("chart %d is not that of %s", i, guard)
		}
		if got, want := strings.Contains(charts[i], red), !guard.Shared(); got != want {
			t.Errorf("the chart of %s has red: %v, want %v", guard, got, want)
		}
		if stays := strings.Count(charts[i], "<title>process "); stays != 500 {
			t.Errorf("the chart of %s has %d stays, want one for each request", guard, stays)
		}
	}
	contains(t, "the chart of fenced", charts[3], "sold one, token ", "sold nothing")
}

func TestDemoOversellTable(t *testing.T) {
	b := demoBench(t)
	b.env = append(b.env, storeVariable+"=sqlite://"+b.folder+"/locks.db")
	r := b.demo(0, "oversell", "--processes", "2", "--clients", "8", "--requests", "3", "--stock", "5", "--think", "5ms")
	contains(t, "stderr", r.stderr, "5 in stock, 24 requests, 2 processes", "an SQLite file", "locks are in sqlite://"+b.folder+"/locks.db")
	lines := strings.Split(strings.TrimSuffix(r.stdout, "\n"), "\n")
	if len(lines) != 5 || strings.Join(strings.Fields(lines[0]), " ") != "GUARD REQUESTS SOLD FINAL STOCK AT ONCE REQUESTS/S WAIT P50 WAIT P99" {
		t.Fatalf("the table is\n%s", r.stdout)
	}
	if got := strings.Fields(lines[3]); got[0] != "dlock" || got[1] != "24" || got[2] != "5" || got[3] != "0" {
		t.Errorf("the line of dlock is %q", lines[3])
	}
	if strings.Contains(r.stdout, "\x1b") {
		t.Errorf("what is piped must have no colours: %q", r.stdout)
	}
}

func TestDemoToken(t *testing.T) {
	b := demoBench(t)
	r := b.demo(0, "token", "--json")
	runs := decodeLines[demo.TokenJSON](t, r.stdout)
	if len(runs) != 2 || runs[0].Guard != "none" || runs[1].Guard != "dlock" {
		t.Fatalf("want a line for none and one for dlock:\n%s", r.stdout)
	}
	for _, run := range runs {
		if run.Processes != 10 || run.Calls != 100 || run.Seconds <= 0 {
			t.Errorf("%+v; want 10 processes with 10 calls each", run)
		}
	}
	if without := runs[0]; without.Failed == 0 || without.Fetches < 2 {
		t.Errorf("without a lock: %+v; want calls that fail", without)
	}
	if with := runs[1]; with.Failed != 0 || with.Fetches != 1 {
		t.Errorf("with a lock: %+v; want no call that fails, and one fetch", with)
	}
	r = b.demo(0, "token", "--processes", "3", "--calls", "2", "--store", "sqlite://./locks.db")
	contains(t, "the table", r.stdout, "GUARD  PROCESSES  CALLS  FAILED  FETCHES\n", "\ndlock          3      6       0        1\n")
	contains(t, "stderr", r.stderr, "locks are in sqlite://", "dlock: 0 of 6 calls failed")
}

// A demo that cannot begin says so before anything else, and leaves no files.
func TestDemoThatCannotBegin(t *testing.T) {
	b := demoBench(t)
	for _, c := range []struct {
		status int
		says   string
		args   []string
	}{
		{exitUnavailable, "connection refused", []string{"oversell", "--store", "redis://u:" + canary + "@127.0.0.1:1"}},
		{exitUnavailable, "connection refused", []string{"token", "--store", "redis://u:" + canary + "@127.0.0.1:1"}},
		{exitUnavailable, "connection refused", []string{"oversell", "--db", "mysql://u:" + canary + "@127.0.0.1:1/shop"}},
		{exitUnavailable, "connection refused", []string{"oversell", "--db=postgres://u:" + canary + "@127.0.0.1:1/shop"}},
		{exitUsage, "database is missing", []string{"oversell", "--db", "mysql://u:" + canary + "@127.0.0.1"}},
		{exitUsage, "--db takes mysql://", []string{"oversell", "--db", "redis://u:" + canary + "@127.0.0.1"}},
		{exitUsage, "for a store of locks", []string{"oversell", "--db", "mysql://u:" + canary + "@127.0.0.1/shop?scheme=session"}},
		{exitUsage, "cannot write the file", []string{"token", "--html", "no/such/folder/page.html"}},
		{exitUsage, "cannot write the file", []string{"oversell", "--svg", "no/such/folder/picture.svg"}},
	} {
		args := c.args
		if c.args[0] == "oversell" {
			args = append(slices.Clone(args), "--html", "page.html")
		}
		r := b.demo(c.status, args...)
		contains(t, strings.Join(c.args, " "), r.stderr, "dlock: ", c.says)
		if strings.Contains(r.stderr+r.stdout, canary) {
			t.Errorf("%q: the password is shown: %s%s", c.args, r.stdout, r.stderr)
		}
		if r.stdout != "" || strings.Contains(r.stderr, "none: ") {
			t.Errorf("%q: something was run: %s%s", c.args, r.stdout, r.stderr)
		}
		if _, err := os.Stat(b.path("page.html")); err == nil {
			t.Errorf("%q: an empty page is left", c.args)
		}
	}
	b.env = append(b.env, "PATH="+b.folder)
	contains(t, "without nginx", b.demo(exitUnavailable, "oversell", "--nginx").stderr, "no nginx in the PATH", "leave out --nginx")
}

// A reader that has seen enough does not keep the demo from cleaning up.
func TestDemoWhoseReaderGoes(t *testing.T) {
	b := demoBench(t)
	cmd := exec.Command("sh", "-c", `{ dlock demo oversell --json; echo "status $?" >&2; } | head -n 1`)
	cmd.Dir, cmd.Env = b.folder, b.env
	r := runWithin(t, cmd, demoLimit)
	contains(t, "stdout", r.stdout, `"guard":"none"`)
	contains(t, "stderr", r.stderr, "cannot write the output", "status 74")
	b.cleanedUp()
}

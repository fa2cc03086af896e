//go:build linux

package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/lab/subject"
	"github.com/dlock-go/dlock/test/harness/await"
)

const canary = "sw0rdfish-canary"

// program is a run of the laboratory whose files and processes can be counted.
type program struct {
	*exec.Cmd
	t              *testing.T
	folder, tmp    string
	stdout, stderr bytes.Buffer
}

func newProgram(t *testing.T, args ...string) *program {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &program{t: t, folder: t.TempDir(), Cmd: exec.CommandContext(t.Context(), self, args...)}
	if p.tmp, err = os.MkdirTemp("", "dlock-lab-test-"); err == nil {
		err = os.Chmod(p.tmp, 0o755) // servers do not run as root
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(p.tmp) }) // the tests expect it to be empty
	p.Dir = p.folder
	p.Env = append(os.Environ(), asProgram+"=1", "TMPDIR="+p.tmp, "PATH="+os.Getenv("PATH")+":/usr/sbin")
	p.Stdout, p.Stderr = &p.stdout, &p.stderr
	return p
}

// run runs the program to its end, and expects that nothing is left of it.
func (p *program) run(status int) *program {
	p.t.Helper()
	if err := p.Cmd.Run(); err != nil && !errors.As(err, new(*exec.ExitError)) {
		p.t.Fatal(err)
	}
	p.ended(status)
	return p
}

func (p *program) ended(status int) {
	p.t.Helper()
	if got := p.ProcessState.ExitCode(); got != status {
		p.t.Errorf("lab %q: exit status %d, want %d\n%s%s", p.Args[1:], got, status, p.stdout.String(), p.stderr.String())
	}
	if left, err := os.ReadDir(p.tmp); err != nil || len(left) > 0 {
		p.t.Errorf("left in the temporary folder: %v, %v", left, err)
	}
	if left := p.processes(); len(left) > 0 {
		p.t.Errorf("processes that are left: %q", left)
	}
}

// processes are those that have the temporary folder: their state and their command.
func (p *program) processes() (found []string) {
	environments, _ := filepath.Glob("/proc/[0-9]*/environ") // the pattern is valid
	for _, path := range environments {
		environment, _ := os.ReadFile(path) // it may be gone
		if bytes.Contains(environment, []byte("TMPDIR="+p.tmp+"\x00")) {
			stat, _ := os.ReadFile(filepath.Join(filepath.Dir(path), "stat"))
			found = append(found, string(stat))
		}
	}
	return found
}

// interrupt sends a signal when the processes are as they have to be, and waits for the end.
func (p *program) interrupt(s syscall.Signal, when func(processes []string) bool) {
	p.t.Helper()
	if err := p.Start(); err != nil {
		p.t.Fatal(err)
	}
	await.Until(p.t, "processes run", func() bool { return when(p.processes()) })
	if err := p.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
	_ = p.Wait() // the tests look at the exit status
}

func several(processes []string) bool { return len(processes) > 2 }

// paused reports whether a process is stopped.
func paused(processes []string) bool {
	return slices.ContainsFunc(processes, func(stat string) bool { return strings.Contains(stat, ") T ") })
}

// TestSignalsEndAStory: a signal ends a story with all its processes, files and locks.
func TestSignalsEndAStory(t *testing.T) {
	for _, story := range []string{"oversell", "token", "pause"} {
		for _, s := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
			t.Run(story+"/"+s.String(), func(t *testing.T) {
				t.Parallel()
				url := "sqlite://" + t.TempDir() + "/locks.db"
				p := newProgram(t, story, "--html", "page.html", "--store", url, "--ttl", "20")
				when := several
				if story == "pause" {
					when = paused
				}
				p.interrupt(s, when)
				p.ended(130)
				if _, err := os.Stat(filepath.Join(p.folder, "page.html")); err == nil {
					t.Error("an empty page is left")
				}
				if story != "pause" { // a paused process is killed, and its lock expires
					checkFree(t, url, "dlock-lab/"+story)
				}
			})
		}
	}
}

func checkFree(t *testing.T, url, name string) {
	t.Helper()
	store, err := subject.OpenStore(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	client := dlock.New(store, nil)
	defer client.Close()
	if info, held, err := client.Find(t.Context(), name); err != nil || held {
		t.Errorf("a lock is left: %+v, %v", info, err)
	}
}

// TestKilledProgramLeavesNoProcess: no process outlives a program that had no chance to end it, not
// even one that is paused.
func TestKilledProgramLeavesNoProcess(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		when func(processes []string) bool
	}{
		"paused": {[]string{"pause", "--ttl", "20"}, paused},
		"nginx": {[]string{"oversell", "--nginx"}, func(processes []string) bool {
			return slices.ContainsFunc(processes, func(stat string) bool { return strings.Contains(stat, "(nginx)") })
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newProgram(t, c.args...)
			p.interrupt(syscall.SIGKILL, c.when)
			await.Until(t, "all processes are gone", func() bool { return len(p.processes()) == 0 })
		})
	}
}

// TestReaderGoes: a reader that has seen enough does not keep the program from cleaning up.
func TestReaderGoes(t *testing.T) {
	t.Parallel()
	p := newProgram(t, "token", "--json")
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	p.Stdout = write
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	write.Close()
	read.Close()
	_ = p.Wait() // the exit status is checked below
	p.ended(1)
	if !strings.Contains(p.stderr.String(), "broken pipe") {
		t.Errorf("it says %s", p.stderr.String())
	}
}

// TestCannotBegin: a story that cannot begin says so, shows no password, and leaves no files.
func TestCannotBegin(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		says string
		args []string
	}{
		{"connection refused", []string{"oversell", "--store", "redis://u:" + canary + "@127.0.0.1:1"}},
		{"connection refused", []string{"token", "--store", "redis://u:" + canary + "@127.0.0.1:1"}},
		{"connection refused", []string{"oversell", "--db", "mysql://u:" + canary + "@127.0.0.1:1/shop"}},
		{"connection refused", []string{"pause", "--db=postgres://u:" + canary + "@127.0.0.1:1/shop"}},
		{"--db", []string{"oversell", "--db", "mysql://u:" + canary + "@127.0.0.1"}},
		{"--db takes mysql://", []string{"oversell", "--db", "sqlite:///tmp/" + canary}},
		{"for a store of locks", []string{"oversell", "--db", "mysql://u:" + canary + "@127.0.0.1/shop?scheme=session"}},
		{"no store has the scheme", []string{"oversell", "--store", "nosuch://u:" + canary + "@127.0.0.1"}},
	} {
		p := newProgram(t, c.args...).run(1)
		said := p.stdout.String() + p.stderr.String()
		if !strings.Contains(said, c.says) || strings.Contains(strings.ReplaceAll(said, "/tmp/"+canary, ""), canary) {
			t.Errorf("%q: want %q and no password: %s", c.args, c.says, said)
		}
	}
}

var guards = []string{"none", "local", "dlock", "fenced"}

func shared(guard string) bool { return guard == "dlock" || guard == "fenced" }

// checkOversell checks the lines of --json.
func checkOversell(t *testing.T, lines string, requests, stock int) {
	t.Helper()
	for _, r := range decode(t, lines, guards...) {
		switch {
		case r.Requests != requests, r.Stock != stock, r.FinalStock != stock-r.Sold, r.Seconds <= 0:
			t.Errorf("measures that cannot be: %+v", r)
		case shared(r.Guard) && (r.FinalStock != 0 || r.AtOnce != 1 || r.Verdict != "held"):
			t.Errorf("%+v; want that exactly the stock was sold", r)
		case !shared(r.Guard) && (r.FinalStock >= 0 || r.AtOnce < 2):
			t.Errorf("%+v; want that more was sold than was there", r)
		}
	}
}

// charts returns the charts of a page, which must need no other file.
func charts(t *testing.T, p *program) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(p.folder, "page.html"))
	if err != nil {
		t.Fatal(err)
	}
	for _, word := range []string{"<script", "<link", "<img", "src=", "href=\"http", "url(", "@import"} {
		if strings.Contains(string(text), word) {
			t.Errorf("the page is not self-contained: %s", word)
		}
	}
	return strings.Split(string(text), "<figure>")[1:]
}

func TestOversell(t *testing.T) {
	t.Parallel()
	p := newProgram(t, "oversell", "--json", "--html", "page.html", "--svg", "picture.svg").run(0)
	checkOversell(t, p.stdout.String(), 500, 40)
	for i, chart := range charts(t, p) {
		if !strings.Contains(chart, "<b>"+guards[i]+"</b>") {
			t.Errorf("chart %d is not that of %s", i, guards[i])
		}
		if strings.Contains(chart, `class="overlap"`) == shared(guards[i]) || strings.Contains(chart, `class="short"`) == shared(guards[i]) {
			t.Errorf("the chart of %s does not show what was sold", guards[i])
		}
		if visits := strings.Count(chart, "<title>process "); visits != 500 {
			t.Errorf("the chart of %s has %d visits, want one for each request", guards[i], visits)
		}
		if guards[i] == "fenced" && !strings.Contains(chart, "sold one, token ") {
			t.Error("the chart of fenced has no tokens")
		}
	}
	picture, err := os.ReadFile(filepath.Join(p.folder, "picture.svg"))
	if err != nil || len(picture) > 60<<10 || !strings.Contains(string(picture), ">fenced: ") {
		t.Errorf("the picture has %d bytes, %v; it has to fit into a document", len(picture), err)
	}
}

// TestOversellWithNginx: with nginx before the shops it is the same. The table is for people.
func TestOversellWithNginx(t *testing.T) {
	t.Parallel()
	p := newProgram(t, "oversell", "--nginx", "--processes", "2", "--clients", "8", "--requests", "3", "--stock", "5", "--think", "0.005").run(0)
	lines := strings.Split(strings.TrimSpace(p.stdout.String()), "\n")
	if len(lines) != 5 || !strings.HasPrefix(strings.Join(strings.Fields(lines[0]), " "), "GUARD REQUESTS SOLD FINAL STOCK AT ONCE") {
		t.Fatalf("the table is\n%s", p.stdout.String())
	}
	if got := strings.Fields(lines[3]); !slices.Equal(got[:4], []string{"dlock", "24", "5", "0"}) {
		t.Errorf("the line of dlock is %q", lines[3])
	}
	p = newProgram(t, "oversell", "--nginx")
	p.Env = append(p.Env, "PATH="+p.folder)
	p.run(1)
	if !strings.Contains(p.stderr.String(), "no nginx in the PATH") {
		t.Errorf("without nginx: %s", p.stderr.String())
	}
}

func TestToken(t *testing.T) {
	t.Parallel()
	p := newProgram(t, "token", "--json", "--html", "page.html").run(0)
	runs := decode(t, p.stdout.String(), "none", "dlock")
	for _, r := range runs {
		if r.Calls != 100 || r.Seconds <= 0 {
			t.Errorf("%+v; want 100 calls", r)
		}
	}
	if without := runs[0]; without.Failed == 0 || without.Fetches < 2 {
		t.Errorf("without a lock: %+v; want calls that fail", without)
	}
	if with := runs[1]; with.Failed != 0 || with.Fetches != 1 {
		t.Errorf("with a lock: %+v; want no call that fails, and one fetch", with)
	}
	drawn := charts(t, p)
	if fetches := strings.Count(drawn[0], "fetched a token"); fetches < 2 {
		t.Errorf("without a lock %d fetches are drawn", fetches)
	}
	if fetched, found := strings.Count(drawn[1], "fetched a token"), strings.Count(drawn[1], "found a token"); fetched != 1 || found != 9 {
		t.Errorf("with a lock %d fetches and %d finds are drawn, want 1 and 9", fetched, found)
	}
}

// TestPausedHolder: a holder that is paused for longer than its TTL oversells with a lock alone, and is
// refused by the fence.
func TestPausedHolder(t *testing.T) {
	t.Parallel()
	p := newProgram(t, "pause", "--ttl", "1", "--json", "--html", "page.html").run(0)
	runs := decode(t, p.stdout.String(), "dlock", "fenced")
	for _, r := range runs {
		if r.Stock != 1 || r.TTLMS != 1000 || r.PausedMS < 500 { // the rest of the TTL, after acquiring and reading
			t.Errorf("%+v; want one in stock, and a pause until the lock has expired", r)
		}
	}
	if alone := runs[0]; alone.Sold != 2 || alone.FinalStock != -1 || alone.Refused != 0 {
		t.Errorf("the lock alone: %+v; want that both have sold the last one", alone)
	}
	if fenced := runs[1]; fenced.Sold != 1 || fenced.FinalStock != 0 || fenced.Refused != 1 {
		t.Errorf("fenced: %+v; want that the late write was refused", fenced)
	}
	drawn := charts(t, p)
	for i, class := range []string{`class="stale"`, `class="refused"`} {
		if !strings.Contains(drawn[i], "1 is paused") || strings.Count(drawn[0]+drawn[1], class) != 1 || !strings.Contains(drawn[i], class) {
			t.Errorf("chart %d does not show the pause, and its late write as %s", i, class)
		}
	}
}

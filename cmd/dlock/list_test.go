//go:build unix

package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/sqllock"
)

func TestListJSON(t *testing.T) {
	b := newBench(t)
	if r := b.must(0, "ls", "--json"); r.stdout+r.stderr != "" {
		t.Errorf("an empty list prints nothing: %q %q", r.stdout, r.stderr)
	}
	p := b.holder("orders/2", "--note", "a \"note\"\n\x1b[31m")
	b.holder("orders/1")
	b.holder("other")
	r := b.must(0, "ls", "orders/", "--json")
	lines := strings.Split(strings.TrimSpace(r.stdout), "\n")
	if len(lines) != 2 {
		t.Fatalf("expected two lines, sorted:\n%s", r.stdout)
	}
	var lock struct {
		Name   string
		Token  uint64
		Holder struct {
			Host, Program, Note *string
			PID                 *int
		}
		Since       time.Time
		RemainingMS int64 `json:"remaining_ms"`
		Waiters     *int
	}
	decode(t, lines[1], &lock)
	switch {
	case lock.Name != "orders/2", lock.Token == 0, lock.Waiters == nil || *lock.Waiters != 0,
		*lock.Holder.Host == "", *lock.Holder.PID != p.cmd.Process.Pid, *lock.Holder.Program != "sh",
		*lock.Holder.Note != "a \"note\"\n\x1b[31m",
		time.Since(lock.Since).Abs() > time.Minute, lock.RemainingMS < 1000, lock.RemainingMS > 31_000:
		t.Errorf("a field is wrong: %s", lines[1])
	}
	contains(t, "the first line", lines[0], `"name":"orders/1"`, `"note":""`)
	var raw map[string]any
	decode(t, lines[1], &raw)
	if len(raw) != 8 || raw["mode"] != "exclusive" || raw["limit"] != 1.0 {
		t.Errorf("expected name, mode, limit, token, holder, since, remaining_ms, waiters: %s", lines[1])
	}
}

func decode(t *testing.T, text string, into any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), into); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
}

// TestJSONEscapesWhatIsInvisible: a terminal would take U+009B for the begin of a control sequence.
func TestJSONEscapesWhatIsInvisible(t *testing.T) {
	b := newBench(t)
	const note = "\u009b31m \u202e \x7f \U000e0041 é"
	b.holder("job", "--note", note)
	for _, command := range []string{"ls", "show"} {
		r := b.must(0, command, "--json", "job")
		var lock struct{ Holder struct{ Note string } }
		decode(t, r.stdout, &lock)
		contains(t, command, r.stdout, `\u009b31m \u202e \u007f \udb40\udc41 é`)
		if lock.Holder.Note != note || strings.ContainsAny(r.stdout, "\u009b\u202e\x7f\U000e0041") {
			t.Errorf("%s --json prints %q, which is the note %q", command, r.stdout, lock.Holder.Note)
		}
	}
}

// Another program may write a long text into the store.
func TestLongNoteIsCut(t *testing.T) {
	b := newBench(t)
	store, err := sqllock.Open(t.Context(), "sqlite://"+b.path("locks.db"), nil)
	if err != nil {
		t.Fatal(err)
	}
	client := dlock.New(store, &dlock.Options{Holder: driver.Holder{Note: strings.Repeat("x", 1<<20)}})
	defer store.Close()
	defer client.Close()
	for i := range 5 {
		if _, err := client.Lock(t.Context(), "job"+strconv.Itoa(i)); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{{"ls"}, {"show", "job1"}, {"exec", "-n", "job1", "--", "true"}} {
		r := b.dlock(args...)
		contains(t, "dlock "+args[0], r.stdout+r.stderr, "xxx…")
		if size := len(r.stdout) + len(r.stderr); size > 10_000 {
			t.Errorf("dlock %q prints %d bytes", args, size)
		}
	}
}

func TestListTable(t *testing.T) {
	b := newBench(t)
	b.holder("plain")
	b.holder("two words", "--note", "\x1b]0;evil\a")
	b.holder("right\u202eleft")
	r := b.must(0, "ls")
	lines := strings.Split(strings.TrimSuffix(r.stdout, "\n"), "\n")
	if len(lines) != 4 {
		t.Fatalf("expected a title and three lines:\n%s", r.stdout)
	}
	if got := strings.Fields(lines[0]); strings.Join(got, " ") != "NAME MODE TOKEN HOLDER SINCE REMAINING WAITERS" {
		t.Errorf("the titles are %q", got)
	}
	contains(t, "the table", r.stdout, "plain ", `"two words"`, `"right\u202eleft"`, `\x1b]0;evil\a`)
	if strings.ContainsAny(r.stdout, "\x1b\a\u202e") {
		t.Errorf("what is piped must have no colours, and names never any escapes: %q", r.stdout)
	}
	column := strings.Index(lines[0], "HOLDER")
	for _, line := range lines[1:] {
		if line[column-1] != ' ' || line[column] == ' ' {
			t.Errorf("not aligned:\n%s", r.stdout)
		}
	}
}

func TestShow(t *testing.T) {
	b := newBench(t)
	r := b.must(1, "show", "job")
	if r.stdout != "job is free\n" {
		t.Errorf("got %q", r.stdout)
	}
	if r = b.must(1, "show", "job", "--json"); r.stdout != `{"name":"job","held":false}`+"\n" {
		t.Errorf("got %q", r.stdout)
	}
	b.holder("job/longer") // has the name as a prefix
	b.must(1, "show", "job")
	b.holder("job", "--note", "why")
	contains(t, "show", b.must(0, "show", "job").stdout, "job\n", "token", "holder", `"why"`, "remaining")
	var shown map[string]any
	decode(t, b.must(0, "show", "--json", "job").stdout, &shown)
	if shown["held"] != true || shown["name"] != "job" || shown["remaining_ms"] == nil {
		t.Errorf("got %v", shown)
	}
}

func TestBreakOnlyHitsTheToken(t *testing.T) {
	b := newBench(t)
	r := b.must(1, "break", "job", "--token", "1")
	contains(t, "stderr", r.stderr, "dlock: job is not held with token 1: it is free")
	b.holder("job")
	r = b.must(1, "break", "job", "--token", "4711")
	contains(t, "stderr", r.stderr, "not held with token 4711", "by sh (pid ")
	b.must(0, "show", "job")
}

func TestDoctor(t *testing.T) {
	b := newBench(t)
	r := b.must(0, "doctor")
	contains(t, "doctor", r.stdout, "What it can promise", "Tokens:", "What was found", "OK ", "locks.db")
	var diagnosis struct {
		URL      string
		OK       bool
		Traits   map[string]any
		Findings []struct{ Check, Level, Message string }
	}
	decode(t, b.must(0, "doctor", "--json").stdout, &diagnosis)
	if !diagnosis.OK || len(diagnosis.Findings) == 0 || diagnosis.Traits["fencing"] != "strong" || diagnosis.Traits["store"] != "sqlite" {
		t.Errorf("got %+v", diagnosis)
	}
}

func TestVersion(t *testing.T) {
	b := newBench(t)
	contains(t, "version", b.must(0, "version").stdout, "dlock ", "commit ", "go1.")
	var version map[string]any
	decode(t, b.must(0, "version", "--json").stdout, &version)
	for _, key := range []string{"version", "commit", "modified", "go", "platform"} {
		if _, ok := version[key]; !ok {
			t.Errorf("%s is missing: %v", key, version)
		}
	}
	contains(t, "--version", b.must(0, "--version").stdout, "dlock version ")
}

func TestCompletion(t *testing.T) {
	b := newBench(t)
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		contains(t, shell, b.must(0, "completion", shell).stdout, "dlock")
	}
	b.holder("orders/1")
	b.holder("other")
	for _, command := range []string{"ls", "show", "break", "exec"} {
		r := b.must(0, "__complete", command, "or")
		if !strings.HasPrefix(r.stdout, "orders/1\n:4") {
			t.Errorf("completing a name for %s: %q", command, r.stdout)
		}
	}
}

func TestStoreThatCannotBeUsed(t *testing.T) {
	b := newBench(t)
	if err := os.WriteFile(b.path("text.db"), []byte(strings.Repeat("this is not a database\n", 100)), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ url, says string }{
		{"sqlite://./text.db", "not a database"},
		{"sqlite://./no/such/folder/x.db", "does not exist"},
		{"sqlite://./text.db/x.db", "not a"},
		{"sqlite://" + b.folder, "is a folder"},
		{"sqlite:///proc/x.db", "cannot use sqlite:///proc/x.db"},
	} {
		for _, args := range [][]string{{"exec", "job", "--", "echo", "no"}, {"ls"}, {"show", "job"}, {"break", "job", "--token", "1"}, {"doctor"}} {
			r := b.must(exitMisconfigured, append([]string{"--store", c.url}, args...)...)
			contains(t, strings.Join(args, " ")+" on "+c.url, r.stderr, "dlock: ", c.says)
			if r.stdout != "" {
				t.Errorf("%q on %s printed %q", args, c.url, r.stdout)
			}
		}
	}
	text, err := os.ReadFile(b.path("text.db"))
	if err != nil || len(text) != 2300 {
		t.Errorf("the file that is not a database was changed: %d bytes, %v", len(text), err)
	}
}

func TestRelativeAndEscapedPaths(t *testing.T) {
	b := newBench(t)
	for url, path := range map[string]string{
		"sqlite://./a.db":                       "a.db",
		"sqlite://./with%20space.db":            "with space.db",
		"SQLITE://./upper.db":                   "upper.db",
		"sqlite://" + b.folder + "/q%3Fm%23.db": "q?m#.db",
	} {
		b.must(0, "--store", url, "exec", "job", "--", "true")
		if info, err := os.Stat(b.path(path)); err != nil || info.Size() == 0 {
			t.Errorf("%s should be %s: %v", url, strconv.Quote(path), err)
		}
	}
}

// A status of its own says that the output could not be written: 1 would be an answer.
func TestOutputThatCannotBeWritten(t *testing.T) {
	b := newBench(t)
	b.holder("job")
	for _, args := range []string{
		"show job", "show job --json", "show free", "ls", "ls --json", "doctor", "doctor --json", "version", "break job --token 1",
		"help", "help exec", "--help", "exec --help", "--version", "completion bash", "completion bash --help",
	} {
		cmd := exec.Command("sh", "-c", "exec dlock "+args+" >/dev/full")
		cmd.Dir, cmd.Env = b.folder, b.env
		r := runToEnd(t, cmd)
		if r.status != exitOutput || !strings.Contains(r.stderr, "dlock: cannot write the output") || strings.Count(r.stderr, "\n") != 1 {
			t.Errorf("dlock %s >/dev/full: status %d, stderr %q; want %d", args, r.status, r.stderr, exitOutput)
		}
	}
}

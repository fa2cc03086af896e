//go:build unix

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock/cmd/dlock/internal/supervise"
)

func TestExecPassesTheStatusThrough(t *testing.T) {
	b := newBench(t)
	for _, c := range []struct {
		script string
		status int
	}{
		{"exit 0", 0}, {"exit 1", 1}, {"exit 64", 64}, {"exit 255", 255},
		{"kill -TERM $$", 128 + 15}, {"kill -KILL $$", 128 + 9}, {"kill -INT $$", 128 + 2},
	} {
		if r := b.must(c.status, "exec", "status", "--", "sh", "-c", c.script); r.stderr != "" {
			t.Errorf("%s: dlock reports %q, although it has nothing to add to the status", c.script, r.stderr)
		}
	}
	if r := b.must(0, "ls"); r.stdout != "" {
		t.Errorf("all commands have ended, but there are locks:\n%s", r.stdout)
	}
}

func TestExecOfWhatCannotRun(t *testing.T) {
	b := newBench(t)
	plain, noFormat := b.path("plain"), b.path("noformat")
	if err := os.WriteFile(plain, []byte("text"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(noFormat, []byte("no #! line"), 0o755); err != nil {
		t.Fatal(err)
	}
	holder := b.holder("busy") // these answers do not wait for the lock
	for _, c := range []struct {
		command string
		status  int
		says    string
	}{
		{"no-such-command-anywhere", 127, "not found"},
		{"./no-such-file", 127, "not found"},
		{"/no/such/folder/file", 127, "not found"},
		{"", 127, "not found"},
		{plain, 126, "permission denied"},
		{b.folder, 126, "directory"},
	} {
		r := b.must(c.status, "exec", "busy", "--", c.command)
		contains(t, "stderr", r.stderr, "dlock: ", c.says)
	}
	holder.stdin.Close()
	holder.expect(0)
	r := b.must(126, "exec", "free", "--", noFormat)
	contains(t, "stderr", r.stderr, "#!")
	b.must(1, "show", "free") // and it was given back

	b.env[0] = "PATH=" + b.folder
	b.must(126, "exec", "free", "--", "plain")
}

func TestExecExcludes(t *testing.T) {
	b := newBench(t)
	first := b.holder("job", "--note", "the first")
	second := b.start("exec", "-v", "job", "--", "echo", "second")
	eventually(t, "the second waits", func() bool { return strings.Contains(second.stderr.String(), "waiting") })
	contains(t, "stderr", second.stderr.String(), "waiting for job, held by sh (pid "+strconv.Itoa(first.cmd.Process.Pid)+")", `"the first"`)
	select {
	case line := <-second.stdout:
		t.Fatalf("the second ran while the first held the lock: %q", line)
	default:
	}
	first.stdin.Close()
	first.expect(0)
	if line := second.line(); line != "second" {
		t.Errorf("the second said %q", line)
	}
	second.expect(0)
}

func TestExecConflict(t *testing.T) {
	b := newBench(t)
	b.holder("job")
	r := b.must(75, "exec", "-n", "job", "--", "echo", "no")
	contains(t, "stderr", r.stderr, "dlock: job is held by sh (pid ")
	if r.stdout != "" {
		t.Errorf("the command ran: %q", r.stdout)
	}
	b.must(42, "exec", "-n", "-E", "42", "job", "--", "echo", "no")
	b.must(75, "exec", "-w", "0s", "job", "--", "echo", "no")
	if r := b.must(0, "exec", "-n", "-q", "-E", "0", "job", "--", "echo", "no"); r.stdout+r.stderr != "" {
		t.Errorf("-q should say nothing, but said %q %q", r.stdout, r.stderr)
	}
	start := time.Now()
	r = b.must(75, "exec", "-w", "300ms", "job", "--", "echo", "no")
	contains(t, "stderr", r.stderr, "gave up after 300ms")
	if took := time.Since(start); took < 300*time.Millisecond {
		t.Errorf("-w 300ms gave up after %v", took)
	}
	b.must(0, "exec", "-n", "other", "--", "true")
}

// TestConflictStatusChangesTheStatusOnly: with -E dlock takes as long to leave the queue, and does
// not report wrong usage.
func TestConflictStatusChangesTheStatusOnly(t *testing.T) {
	b := newBench(t)
	for _, status := range []int{exitNotAcquired, 3, exitUsage, exitLost} {
		r := &lockRequest{app: &app{}, flags: holdFlags{conflict: status}}
		if limit := r.cleanupLimit(r.notAcquired("held")); limit != undoLimit {
			t.Errorf("-E %d: it cleans up for %v, want %v", status, limit, undoLimit)
		}
	}
	b.holder("job")
	if r := b.must(exitUsage, "exec", "-n", "-E", "64", "job", "--", "true"); strings.Contains(r.stderr, "usage") {
		t.Errorf("it reports wrong usage: %s", r.stderr)
	}
}

func TestExecPassesStdinAndArguments(t *testing.T) {
	b := newBench(t)
	p := b.start("exec", "job", "--", "sh", "-c", `cat; echo "$0 $1 $2"`, "-n", "--", "--ttl")
	fmt.Fprintln(p.stdin, "through stdin")
	p.stdin.Close()
	if got := p.line() + "|" + p.line(); got != "through stdin|-n -- --ttl" {
		t.Errorf("got %q", got)
	}
	p.expect(0)
	if r := b.must(0, "exec", "job", "printf", "%s", "-n"); r.stdout != "-n" {
		t.Errorf("without --, what follows NAME belongs to the command; got %q", r.stdout)
	}
}

func TestExecEnvironment(t *testing.T) {
	b := newBench(t)
	b.env = append(b.env, "DLOCK_NAME=outer", "DLOCK_TOKEN=outer", "DLOCK_HELD=")
	var last uint64
	for range 2 {
		r := b.must(0, "exec", "job name", "--", "env")
		if n := strings.Count(r.stdout, "DLOCK_NAME=") + strings.Count(r.stdout, "DLOCK_TOKEN="); n != 2 {
			t.Errorf("the variables should be there once each:\n%s", r.stdout)
		}
		contains(t, "the environment", r.stdout, "DLOCK_NAME=job name\n")
		_, after, _ := strings.Cut(r.stdout, "DLOCK_TOKEN=")
		number, _, _ := strings.Cut(after, "\n")
		token, err := strconv.ParseUint(number, 10, 64)
		if err != nil || token <= last {
			t.Errorf("token %q after %d: tokens must rise", number, last)
		}
		last = token
	}
}

func TestNestedExec(t *testing.T) {
	b := newBench(t)
	r := b.must(75, "exec", "a", "--", "dlock", "exec", "a", "--", "echo", "no")
	contains(t, "stderr", r.stderr, "wait for itself")
	b.must(9, "exec", "a", "--", "dlock", "exec", "-E", "9", "a", "--", "echo", "no")

	// Through another lock, and by another spelling of the same store.
	if err := os.Symlink(b.folder, b.path("link")); err != nil {
		t.Fatal(err)
	}
	b.must(75, "exec", "a", "--", "dlock", "exec", "b", "--",
		"dlock", "--store", "sqlite://./link/locks.db", "exec", "a", "--", "echo", "no")

	r = b.must(0, "exec", "a", "--", "dlock", "exec", "b", "--", "sh", "-c", "echo $DLOCK_NAME")
	if r.stdout != "b\n" {
		t.Errorf("another name inside should work and see its own name, got %q", r.stdout)
	}
	r = b.must(0, "exec", "a", "--", "dlock", "--store", "sqlite://./other.db", "exec", "a", "--", "echo", "yes")
	if r.stdout != "yes\n" {
		t.Errorf("the same name in another store is another lock, got %q", r.stdout)
	}
	// The variable of a lock that was released long ago means nothing.
	r = b.must(0, "exec", "a", "--", "sh", "-c", "echo $DLOCK_HELD")
	b.env = append(b.env, "DLOCK_HELD="+strings.TrimSpace(r.stdout))
	b.must(0, "exec", "-n", "a", "--", "true")
	b.holder("a")
	r = b.must(75, "exec", "-n", "a", "--", "true")
	contains(t, "stderr", r.stderr, "a is held by sh")
}

// The kernel limits each variable to 128 KiB.
func TestListOfHeldLocksIsBounded(t *testing.T) {
	b := newBench(t)
	list := func(pid int) string {
		entry := fmt.Sprintf("%032x:%053d:%010d:%032x,", 0, 1, pid, 0)
		return "DLOCK_HELD=" + strings.TrimSuffix(strings.Repeat(entry, 1000), ",") // there is no room for another one
	}
	env := b.env
	b.env = append(env[:len(env):len(env)], list(math.MaxInt32)) // no process has this number
	if r := b.must(0, "exec", "job", "--", "sh", "-c", "echo $DLOCK_HELD"); len(r.stdout) > 200 {
		t.Errorf("the list has %d bytes after all its processes have ended", len(r.stdout))
	}
	b.env = append(env[:len(env):len(env)], list(os.Getpid()))
	r := b.must(exitUsage, "exec", "job", "--", "echo", "no")
	contains(t, "stderr", r.stderr, "$DLOCK_HELD", "the limit is 131071")

	b.env = env
	args := []string{"exec"}
	for i := range 3000 {
		args = append(args, "-a", fmt.Sprint("job", i))
	}
	r = b.must(exitUsage, append(args, "--", "echo", "no")...)
	contains(t, "stderr", r.stderr, "3000 names are too many", "the limit is 131071")
}

func TestMinHold(t *testing.T) {
	b := newBench(t)
	start := time.Now()
	p := b.start("exec", "--ttl", "3s", "--min-hold", "3500ms", "cron", "--", "sh", "-c", "echo done; exit 3")
	p.line()
	b.must(75, "exec", "-n", "cron", "--", "true")
	p.expect(3)
	if took := time.Since(start); took < 3500*time.Millisecond {
		t.Errorf("the lock was kept for %v only", took)
	}
	b.must(0, "exec", "-n", "cron", "--", "true")
}

// fullPipe returns a pipe that takes no more bytes.
func fullPipe(t *testing.T) (read, write *os.File) {
	t.Helper()
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { read.Close(); write.Close() })
	_ = write.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
	if _, err := write.Write(make([]byte, 1<<20)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal(err)
	}
	return read, write
}

// TestUselessStderr: a stderr without a reader, or with one that has stopped reading, keeps neither the
// command from running nor the lock.
func TestUselessStderr(t *testing.T) {
	for _, name := range []string{"closed", "full"} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			read, write := fullPipe(t)
			if name == "closed" {
				read.Close()
			}
			cmd := exec.Command(dlockBinary, "exec", "-v", "job", "--", "echo", "ran")
			cmd.Dir, cmd.Env, cmd.Stderr = b.folder, b.env, write
			cmd.WaitDelay = time.Second
			limit := time.AfterFunc(patient, func() { _ = cmd.Process.Kill() })
			defer limit.Stop()
			if out, err := cmd.Output(); err != nil || string(out) != "ran\n" {
				t.Errorf("it printed %q: %v", out, err)
			}
			b.must(1, "show", "job")
		})
	}
}

// TestLongestDurations: no sum with a duration of the command line overflows.
func TestLongestDurations(t *testing.T) {
	b := newBench(t)
	const longest = "2562047h47m16.854775807s"
	for _, flag := range []string{"--wait", "--grace", "--max-hold"} {
		b.must(0, "exec", flag, longest, "job", "--", "true")
	}
}

func TestTwentyProcessesIncrement(t *testing.T) {
	b := newBench(t)
	counter := b.path("counter")
	if err := os.WriteFile(counter, []byte("0\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	const processes, rounds = 20, 2
	var running []*process
	for i := range processes {
		flags := []string{"exec", "counter", "--"}
		if i%2 == 0 {
			flags = []string{"exec", "--fair", "counter", "--"}
		}
		script := fmt.Sprintf("n=$(cat %[1]s); echo $((n+%[2]d)) > %[1]s", counter, rounds)
		running = append(running, b.start(append(flags, "sh", "-c", script)...))
	}
	for _, p := range running {
		p.expect(0)
	}
	text, err := os.ReadFile(counter)
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.TrimSpace(string(text)); got != strconv.Itoa(processes*rounds) {
		t.Errorf("counted to %s, expected %d: two ran at once", got, processes*rounds)
	}
	if r := b.must(0, "ls"); r.stdout != "" {
		t.Errorf("something is left:\n%s", r.stdout)
	}
}

func TestDefaultStoreNeedsNoSetUp(t *testing.T) {
	b := newBench(t)
	b.env = b.env[:4] // no DLOCK_STORE
	r := b.must(0, "exec", "hello", "--", "echo", "only one of us")
	if r.stdout != "only one of us\n" {
		t.Errorf("got %q", r.stdout)
	}
	for path, mode := range map[string]os.FileMode{".local/state/dlock": 0o700, ".local/state/dlock/dlock.db": 0o600} {
		if info, err := os.Stat(b.path(path)); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s should have mode %o: %v %v", path, mode, info, err)
		}
	}
	b.env = append(b.env, "XDG_STATE_HOME="+b.path("state"))
	r = b.must(0, "doctor", "--json")
	var diagnosis diagnosisJSON
	_ = json.Unmarshal([]byte(r.stdout), &diagnosis)
	contains(t, "the URL of the store", diagnosis.URL, "/state/dlock/dlock.db")
}

// A guard that cannot be started is not a command that was not found.
func TestGuardThatCannotStart(t *testing.T) {
	err := cannotStart("true", fmt.Errorf("%w: %w", supervise.ErrGuard, fs.ErrNotExist))
	if exitStatus(err) != exitUnavailable || strings.Contains(err.Error(), "not found:") {
		t.Errorf("status %d: %v", exitStatus(err), err)
	}
}

// TestFlagBeforeSubcommand: a flag of exec may precede the word exec.
func TestFlagBeforeSubcommand(t *testing.T) {
	b := newBench(t)
	r := b.must(7, "-v", "exec", "job", "--", "sh", "-c", "exit 7")
	contains(t, "stderr", r.stderr, "acquired job")
}

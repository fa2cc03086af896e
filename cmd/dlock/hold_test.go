//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// granted reads the line that hold prints first.
func (p *process) granted(name string) holdJSON {
	p.t.Helper()
	var lock holdJSON
	line := p.line()
	if err := json.Unmarshal([]byte(line), &lock); err != nil || lock.Name != name || lock.Token == 0 || lock.TTLMS <= 0 {
		p.t.Fatalf("hold printed %q (%v)", line, err)
	}
	return lock
}

func TestHoldUntilStdinCloses(t *testing.T) {
	b := newBench(t)
	p := b.start("hold", "--ttl", "3", "job")
	lock := p.granted("job")
	if lock.TTLMS != 3000 {
		t.Errorf("the TTL is %d ms", lock.TTLMS)
	}
	contains(t, "show", b.must(0, "show", "--json", "job").stdout, fmt.Sprintf(`"token":%d,`, lock.Token))
	b.must(75, "hold", "-n", "job")
	fmt.Fprintln(p.stdin, "what is written does not matter")
	b.must(75, "exec", "-n", "job", "--", "true")
	p.stdin.Close()
	p.expect(0)
	b.must(0, "exec", "-n", "job", "--", "true")
}

func TestHoldUntilItsParentEnds(t *testing.T) {
	b := newBench(t)
	// The fifo stays open for reading and writing in hold itself, so that stdin never closes.
	cmd := exec.Command("sh", "-c", "mkfifo gate; dlock hold job <>gate & echo $!; wait")
	cmd.Dir, cmd.Env = b.folder, b.env
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var pid int
	if _, err := fmt.Fscan(out, &pid); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = syscall.Kill(pid, syscall.SIGKILL) }()
	eventually(t, "it holds the lock", func() bool { return b.dlock("show", "job").status == 0 })
	_ = cmd.Process.Kill()
	eventually(t, "it has given the lock back", func() bool { return b.dlock("show", "job").status == 1 })
	_ = cmd.Wait()
}

// TestHoldEndsAlthoughItsLineIsNotRead: hold reacts to signals while it cannot print its line.
func TestHoldEndsAlthoughItsLineIsNotRead(t *testing.T) {
	b := newBench(t)
	_, full := fullPipe(t)
	cmd := exec.Command(dlockBinary, "hold", "job")
	cmd.Dir, cmd.Env, cmd.Stdout = b.folder, b.env, full
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	limit := time.AfterFunc(patient, func() { _ = cmd.Process.Kill() })
	defer limit.Stop()
	eventually(t, "it holds the lock", func() bool { return b.dlock("show", "job").status == 0 })
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if status := cmd.ProcessState.ExitCode(); status != 128+int(syscall.SIGTERM) {
		t.Errorf("it ended with %v", cmd.ProcessState)
	}
	b.must(1, "show", "job")
}

func TestHoldEndsWithASignal(t *testing.T) {
	b := newBench(t)
	p := b.start("hold", "job")
	p.granted("job")
	p.signal(syscall.SIGTERM)
	p.expect(128 + int(syscall.SIGTERM))
	b.must(0, "exec", "-n", "job", "--", "true")
}

func TestHoldSaysThatItLostTheLock(t *testing.T) {
	b := newBench(t)
	p := b.start("hold", "--ttl", "1500ms", "job")
	lock := p.granted("job")
	b.must(0, "break", "job", "--token", fmt.Sprint(lock.Token))
	p.expect(exitLost)
	contains(t, "stderr", p.stderr.String(), "dlock: lost job: ")
}

func TestHoldLimits(t *testing.T) {
	b := newBench(t)
	start := time.Now()
	p := b.start("hold", "--max-hold", "0.5", "job")
	p.granted("job")
	p.expect(exitLost)
	contains(t, "stderr", p.stderr.String(), "held job for 500ms, which is the limit of --max-hold")
	b.must(0, "exec", "-n", "job", "--", "true")

	p = b.start("hold", "--min-hold", "1", "job")
	p.granted("job")
	p.stdin.Close()
	p.expect(0)
	if took := time.Since(start); took < 1500*time.Millisecond {
		t.Errorf("the lock was held for less than --min-hold, all took %v", took)
	}
}

// A script cannot know that the lock is held if the line cannot be written.
func TestHoldWhoseReaderIsGone(t *testing.T) {
	b := newBench(t)
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	read.Close()
	defer write.Close()
	cmd := exec.Command(dlockBinary, "hold", "job")
	cmd.Dir, cmd.Env, cmd.Stdout = b.folder, b.env, write
	var stderr syncBuffer
	cmd.Stderr = &stderr
	_ = cmd.Run()
	if status := cmd.ProcessState.ExitCode(); status != exitOutput || !strings.Contains(stderr.String(), "cannot write the output") {
		t.Errorf("status %d, stderr: %s", status, stderr.String())
	}
	b.must(1, "show", "job")
}

// The middle part of a script, as the help shows it.
// TestHoldInAScript runs three copies of the script of the help text at the same time.
func TestHoldInAScript(t *testing.T) {
	b := newBench(t)
	help := b.must(0, "hold", "--help").stdout
	_, script, found := strings.Cut(help, "Examples:\n")
	script, coprocess, found2 := strings.Cut(script, "\n\n")
	if !found || !found2 {
		t.Fatalf("the examples of hold are not where they were:\n%s", help)
	}
	coprocess, _, _ = strings.Cut(coprocess, "\n\n")
	const work = `mkdir alone && echo "$line" && dlock show nightly >/dev/null && echo held; rmdir alone`
	script, coprocess = strings.Replace(script, "...", work, 1), strings.Replace(coprocess, "...", work, 1)
	var copies sync.WaitGroup
	for _, cmd := range []*exec.Cmd{exec.Command("sh", "-c", script), exec.Command("sh", "-c", script), exec.Command("bash", "-c", coprocess)} {
		copies.Go(func() {
			cmd.Dir, cmd.Env = b.folder, b.env
			r := runToEnd(t, cmd)
			if lines := strings.Split(r.stdout, "\n"); r.status != 0 || len(lines) != 3 || !strings.HasPrefix(lines[0], `{"name":"nightly","token":`) || lines[1] != "held" {
				t.Errorf("the script printed %q, status %d, stderr: %s", r.stdout, r.status, r.stderr)
			}
		})
	}
	copies.Wait()
	b.must(1, "show", "nightly")
}

func TestSeveralNames(t *testing.T) {
	b := newBench(t)
	r := b.must(0, "exec", "-a", "b", "-a", "a", "-a", "b", "--", "sh", "-c", `echo "$DLOCK_NAME"; echo "$DLOCK_TOKEN"; dlock ls --json`)
	lines := strings.Split(strings.TrimSpace(r.stdout), "\n")
	if len(lines) != 6 || lines[0] != "b" || lines[1] != "a" {
		t.Fatalf("want two names, two tokens and two locks:\n%s", r.stdout)
	}
	contains(t, "ls", lines[4], `"name":"a","token":`+lines[3]+",")
	contains(t, "ls", lines[5], `"name":"b","token":`+lines[2]+",")
	if r := b.must(0, "ls"); r.stdout != "" {
		t.Errorf("something is left:\n%s", r.stdout)
	}

	b.must(0, "exec", "-a", "b", "-a", "a", "--", "env", "--", "true")             // the second "--" is of env
	contains(t, "stderr", b.must(127, "exec", "-a", "b", "--", "-a").stderr, "-a") // a command, not a flag

	// All or none, and one that is lost ends the command.
	holder := b.holder("a")
	r = b.must(75, "exec", "-n", "-a", "b", "-a", "a", "--", "echo", "no")
	contains(t, "stderr", r.stderr, "dlock: a is held by sh (pid ")
	b.must(1, "show", "b")
	holder.stdin.Close()
	holder.expect(0)
	p := b.start("exec", "--ttl", "1500ms", "-a", "b", "-a", "a", "--", "sh", "-c", `echo "$DLOCK_TOKEN"; exec sleep 1000`)
	p.line()
	b.must(0, "break", "a", "--token", p.line())
	p.expect(exitLost)
	contains(t, "stderr", p.stderr.String(), "dlock: lost b and a, ending the command: ")
	b.must(1, "show", "b")

	// Inside of it each name would wait for itself.
	r = b.must(75, "exec", "-a", "b", "-a", "a", "--", "dlock", "exec", "a", "--", "echo", "no")
	contains(t, "stderr", r.stderr, "a is held by the dlock around this one")
	r = b.must(75, "exec", "a", "--", "dlock", "exec", "-a", "b", "-a", "a", "--", "echo", "no")
	contains(t, "stderr", r.stderr, "a is held by the dlock around this one")
}

func TestMaxHold(t *testing.T) {
	b := newBench(t)
	p := b.start("exec", "--max-hold", "0.5", "--grace", "1", "job", "--",
		"sh", "-c", `trap 'echo cleaned up; exit 0' TERM; echo up; while :; do sleep 0.05; done`)
	p.line()
	if line := p.line(); line != "cleaned up" {
		t.Errorf("got %q", line)
	}
	p.expect(exitLost)
	contains(t, "stderr", p.stderr.String(), "held job for 500ms, which is the limit of --max-hold: ending the command")
	b.must(0, "exec", "-n", "job", "--", "true")

	p = b.start("exec", "--max-hold", "0.5", "--grace", "0.2", "job", "--", "sh", "-c", `trap "" TERM; sleep 1000 & echo up; wait; wait`)
	p.line()
	p.expect(exitLost) // with KILL
	b.must(7, "exec", "--max-hold", "1h", "job", "--", "sh", "-c", "exit 7")
}

func TestPlainNumbersAreSeconds(t *testing.T) {
	b := newBench(t)
	p := b.start("exec", "--ttl", "20", "job", "--", "sh", "-c", "echo up; exec cat")
	p.line()
	var lock lockJSON
	if err := json.Unmarshal([]byte(b.must(0, "show", "--json", "job").stdout), &lock); err != nil || lock.RemainingMS < 1000 || lock.RemainingMS > 20000 {
		t.Errorf("with --ttl 20 the lock has %d ms left: %v", lock.RemainingMS, err)
	}
	r := b.must(75, "exec", "-w", "0.3", "job", "--", "true")
	contains(t, "stderr", r.stderr, "gave up after 300ms")
	for text, want := range map[string]time.Duration{
		"30": 30 * time.Second, "0.5": 500 * time.Millisecond, "1h": time.Hour, "0": 0, "-2": -2 * time.Second, "5m30s": 330 * time.Second,
	} {
		if got, err := parseDuration(text); err != nil || got != want {
			t.Errorf("%s is %v, %v; want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "x", "NaN", "inf", "1e30", "5 s"} {
		if got, err := parseDuration(text); err == nil {
			t.Errorf("%q is taken for %v", text, got)
		}
	}
}

// In a log there is no terminal, but its reader wants to know why nothing happens.
func TestLongWaitIsExplainedWithoutATerminal(t *testing.T) {
	b := newBench(t)
	b.holder("job")
	p := b.start("exec", "job", "--", "true")
	quiet := b.start("exec", "-q", "job", "--", "true")
	eventually(t, "it says what it waits for", func() bool { return p.stderr.String() != "" })
	contains(t, "stderr", p.stderr.String(), "dlock: waiting for job, held by sh (pid ")
	if quiet.stderr.String() != "" {
		t.Errorf("with -q it said %q", quiet.stderr.String())
	}
}

func TestCompletionOfTokens(t *testing.T) {
	b := newBench(t)
	p := b.start("hold", "--note", "x", "job")
	token := fmt.Sprint(p.granted("job").Token)
	b.start("hold", "other").granted("other")
	for _, c := range []struct {
		args   []string
		offers []string
		not    string
	}{
		{[]string{"break", ""}, []string{"job\n", "other\n"}, "x"},
		{[]string{"break", "j"}, []string{"job\n"}, "other"},
		{[]string{"break", "job", "--token", ""}, []string{token + "\tjob held by dlock (pid "}, "other"},
		{[]string{"break", "--token", ""}, []string{token + "\tjob held by", "\tother held by"}, "xxx"},
		{[]string{"show", ""}, []string{"job\n", "other\n"}, "x"},
	} {
		r := b.must(0, append([]string{"__complete"}, c.args...)...)
		contains(t, fmt.Sprintf("the completion of %q", c.args), r.stdout, c.offers...)
		if strings.Contains(r.stdout, c.not) {
			t.Errorf("%q offers %q:\n%s", c.args, c.not, r.stdout)
		}
	}
}

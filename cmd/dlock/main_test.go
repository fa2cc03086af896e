//go:build unix

package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/dlock-go/dlock/cmd/dlock/internal/supervise"
)

// dlockBinary is the real program, built once, with the race detector if the
// tests have it.
var dlockBinary string

func TestMain(m *testing.M) {
	// Where a signal is ignored (nohup, a shell's background), the programs of the
	// tests would ignore it as well. They start with the default if it is handled here.
	for _, s := range supervise.StopSignals {
		if signal.Ignored(s) {
			signal.Notify(make(chan os.Signal, 1), s)
		}
	}
	os.Exit(func() int {
		folder, err := os.MkdirTemp("", "dlock-test")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer func() { _ = os.RemoveAll(folder) }()
		dlockBinary = filepath.Join(folder, "dlock")
		build := exec.Command("go", "build", "-race="+strconv.FormatBool(raceBuild), "-o", dlockBinary, ".")
		build.Stderr = os.Stderr
		if err := build.Run(); err != nil {
			fmt.Fprintln(os.Stderr, "building dlock:", err)
			return 1
		}
		return m.Run()
	}())
}

// patient is the limit of everything that must happen. It is only reached by
// a test that fails.
const patient = 20 * time.Second

// bench is a place for one test: a folder with a store of its own.
type bench struct {
	t      *testing.T
	folder string
	env    []string
}

func newBench(t *testing.T) *bench {
	t.Helper()
	t.Parallel()
	folder := t.TempDir()
	return &bench{t: t, folder: folder, env: []string{
		"PATH=" + filepath.Dir(dlockBinary) + ":" + os.Getenv("PATH"),
		"HOME=" + folder,
		"TERM=xterm",
		"GORACE=atexit_sleep_ms=0", // otherwise every exit takes a second
		storeVariable + "=sqlite://" + folder + "/locks.db",
	}}
}

func (b *bench) path(name string) string { return filepath.Join(b.folder, name) }

// process is a dlock that runs.
type process struct {
	t      *testing.T
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stdout chan string // lines
	stderr syncBuffer
	done   chan struct{}
	status int // -1 if a signal ended it
}

// start runs dlock. Its stdin is a pipe that stays open until the test closes it.
func (b *bench) start(args ...string) *process {
	b.t.Helper()
	p := &process{t: b.t, cmd: exec.Command(dlockBinary, args...), stdout: make(chan string, 1000), done: make(chan struct{})}
	p.cmd.Dir, p.cmd.Env = b.folder, b.env
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	p.cmd.Stderr = &p.stderr
	var err error
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		b.t.Fatal(err)
	}
	out, outWrite, err := os.Pipe()
	if err != nil {
		b.t.Fatal(err)
	}
	p.cmd.Stdout = outWrite
	p.cmd.WaitDelay = time.Second // a grandchild may keep stderr
	if err := p.cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	outWrite.Close()
	go func() {
		defer out.Close()
		defer close(p.stdout)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			p.stdout <- lines.Text()
		}
	}()
	go func() {
		defer close(p.done)
		_ = p.cmd.Wait()
		p.status = p.cmd.ProcessState.ExitCode()
	}()
	b.t.Cleanup(func() { _ = p.cmd.Process.Kill() })
	return p
}

// line returns the next line of stdout.
func (p *process) line() string {
	p.t.Helper()
	select {
	case line, ok := <-p.stdout:
		if !ok {
			p.t.Fatalf("%v: stdout ended, stderr: %s", p.cmd.Args, p.stderr.String())
		}
		return line
	case <-time.After(patient):
		p.t.Fatalf("%v: no line on stdout, stderr: %s", p.cmd.Args, p.stderr.String())
	}
	return ""
}

// wait returns the exit status.
func (p *process) wait() int {
	p.t.Helper()
	select {
	case <-p.done:
	case <-time.After(patient):
		p.t.Fatalf("%v: still running, stderr: %s", p.cmd.Args, p.stderr.String())
	}
	return p.status
}

func (p *process) expect(status int) {
	p.t.Helper()
	if got := p.wait(); got != status {
		p.t.Errorf("%v: exit status %d, expected %d; stderr: %s", p.cmd.Args[1:], got, status, p.stderr.String())
	}
}

func (p *process) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}

// result is a dlock that ended.
type result struct {
	stdout, stderr string
	status         int
}

// dlock runs dlock to its end with no stdin.
func (b *bench) dlock(args ...string) result {
	b.t.Helper()
	cmd := exec.Command(dlockBinary, args...)
	cmd.Dir, cmd.Env = b.folder, b.env
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return runToEnd(b.t, cmd)
}

func runToEnd(t *testing.T, cmd *exec.Cmd) result {
	t.Helper()
	return runWithin(t, cmd, patient)
}

func runWithin(t *testing.T, cmd *exec.Cmd, most time.Duration) result {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	limit := time.AfterFunc(most, func() { _ = cmd.Process.Kill() })
	defer limit.Stop()
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return result{stdout.String(), stderr.String(), cmd.ProcessState.ExitCode()}
}

// must is dlock with an expected status.
func (b *bench) must(status int, args ...string) result {
	b.t.Helper()
	r := b.dlock(args...)
	if r.status != status {
		b.t.Errorf("dlock %q: exit status %d, expected %d\nstdout: %s\nstderr: %s", args, r.status, status, r.stdout, r.stderr)
	}
	return r
}

// holder runs a dlock that holds name until the test closes its stdin.
func (b *bench) holder(name string, flags ...string) *process {
	b.t.Helper()
	p := b.start(append(append([]string{"exec"}, flags...), name, "--", "sh", "-c", "echo $DLOCK_TOKEN; exec cat")...)
	p.line()
	return p
}

// eventually polls until something is true.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	limit := time.After(patient)
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for !condition() {
		select {
		case <-limit:
			t.Fatalf("it never happened that %s", what)
		case <-again.C:
		}
	}
}

func contains(t *testing.T, what, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%s should contain %q:\n%s", what, part, text)
		}
	}
}

type syncBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

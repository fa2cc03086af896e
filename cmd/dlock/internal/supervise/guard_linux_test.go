package supervise

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// eventually polls until something is true.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	limit := time.After(20 * time.Second) // only reached by a test that fails
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

// alive reports whether a process runs. A process that has ended and was not waited for
// does not run.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, after, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(after, "Z") && !strings.HasPrefix(after, "X")
}

// hasReadAll waits until a guard has read all records and has decided about them: all its threads
// sleep.
func hasReadAll(t *testing.T, pid int) {
	t.Helper()
	eventually(t, "the guard has read the pending records", func() bool {
		pipe, err := os.Open(fmt.Sprintf("/proc/%d/fd/0", pid))
		if err != nil {
			t.Fatal(err)
		}
		defer pipe.Close()
		pending, err := unix.IoctlGetInt(int(pipe.Fd()), unix.TIOCINQ)
		return err == nil && pending == 0 && sleeps(t, pid)
	})
}

// sleeps reports whether all threads of a process wait for something.
func sleeps(t *testing.T, pid int) bool {
	t.Helper()
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil || len(files) == 0 {
		t.Fatalf("the threads of process %d: %v, %v", pid, files, err)
	}
	return !slices.ContainsFunc(files, func(file string) bool {
		stat, err := os.ReadFile(file)
		return err != nil || !strings.Contains(string(stat), ") S ")
	})
}

// guardedGroup is a guard of a process group that the test started.
type guardedGroup struct {
	guard  *guardProcess
	group  int
	stderr string // the file
}

func newGuarded(t *testing.T) *guardedGroup {
	t.Helper()
	t.Parallel()
	cmd := exec.Command("sleep", "1000")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { _ = cmd.Wait() }()
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	stderr, err := os.CreateTemp(t.TempDir(), "stderr")
	if err != nil {
		t.Fatal(err)
	}
	defer stderr.Close()
	guard, err := startGuard("job", stderr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(guard.dismiss)
	return &guardedGroup{guard, cmd.Process.Pid, stderr.Name()}
}

// said returns what the guard wrote to stderr, as soon as it wrote something.
func (g *guardedGroup) said(t *testing.T) string {
	t.Helper()
	var text []byte
	eventually(t, "the guard says something", func() bool {
		text, _ = os.ReadFile(g.stderr)
		return len(text) > 0
	})
	return string(text)
}

// While the guard is stopped its pipe is full after some time. It must still find
// the newest record, and not only those that had room.
func TestGuardFindsTheNewestRecordInAFullPipe(t *testing.T) {
	g := newGuarded(t)
	g.guard.extend(g.group, uptime()+time.Hour)
	if _, err := unix.FcntlInt(uintptr(g.guard.readFd), unix.F_SETPIPE_SZ, 4096); err != nil {
		t.Fatal(err)
	}
	if err := g.guard.process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	for range 4096/recordSize + 10 { // more than there is room for
		g.guard.extend(g.group, uptime()-time.Second)
	}
	g.guard.extend(g.group, uptime()+time.Hour)
	if err := g.guard.process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	hasReadAll(t, g.guard.process.Pid)
	if !alive(g.group) {
		t.Fatalf("the guard killed the group although the lease lasts; it says %s", g.said(t))
	}
	g.guard.extend(g.group, uptime()-time.Second)
	eventually(t, "the group is dead after the lease has ended", func() bool { return !alive(g.group) })
	if said := g.said(t); said != "dlock: killed the command that ran under job: dlock was stopped or starved until the lease ended\n" {
		t.Errorf("it said %q", said)
	}
}

// The guard's last record may be old when it goes on. What is pending counts.
func TestGuardReadsWhatIsPendingBeforeItDecides(t *testing.T) {
	for what, write := range map[string]func(g *guardedGroup){
		"record":      func(g *guardedGroup) { g.guard.extend(g.group, uptime()+time.Hour) },
		"last record": func(g *guardedGroup) { g.guard.send(lastRecord) },
	} {
		t.Run(what, func(t *testing.T) {
			g := newGuarded(t)
			until := uptime() + 2*time.Second
			g.guard.extend(g.group, until)
			hasReadAll(t, g.guard.process.Pid)
			if err := g.guard.process.Signal(syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			eventually(t, "the lease has ended", func() bool { return uptime() > until })
			write(g)
			if err := g.guard.process.Signal(syscall.SIGCONT); err != nil {
				t.Fatal(err)
			}
			g.guard.dismiss()
			if text, err := os.ReadFile(g.stderr); err != nil || len(text) > 0 || !alive(g.group) {
				t.Errorf("the guard killed a healthy group; it says %q, %v", text, err)
			}
		})
	}
}

// lostLease was lost before the command could start.
type lostLease struct{}

func (lostLease) Context() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

func (lostLease) Remaining() time.Duration { return 0 }

// A dlock that was paused until its lease ended, just before it started the command, starts nothing.
func TestLostLockStartsNothing(t *testing.T) {
	t.Parallel()
	path, err := exec.LookPath("touch")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "file")
	stderr, err := os.CreateTemp(t.TempDir(), "stderr")
	if err != nil {
		t.Fatal(err)
	}
	defer stderr.Close()
	job := &Job{Path: path, Args: []string{"touch", file}, Files: []*os.File{nil, nil, stderr}, Budget: SplitTTL(time.Minute, time.Second)}
	if _, err := job.Run(lostLease{}, make(chan os.Signal, 1)); !errors.Is(err, ErrLost) {
		t.Errorf("Run = %v; want ErrLost", err)
	}
	if _, err := os.Stat(file); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the command ran: %v", err)
	}
	if said, err := os.ReadFile(stderr.Name()); err != nil || len(said) > 0 {
		t.Errorf("it says %q, %v; want nothing: its caller reports the loss", said, err)
	}
}

// renewedLease is renewed a moment after it was acquired.
type renewedLease struct{ acquired time.Time }

func (renewedLease) Context() context.Context { return context.Background() }

func (l renewedLease) Remaining() time.Duration {
	if time.Since(l.acquired) < time.Millisecond {
		return time.Millisecond
	}
	return time.Minute
}

// The guard kills no command because starting it took longer than the lease had when the start began.
func TestSlowStartKillsNothing(t *testing.T) {
	t.Parallel()
	path, err := exec.LookPath("sleep")
	if err != nil {
		t.Fatal(err)
	}
	job := &Job{Path: path, Args: []string{"sleep", "0.3"}, Files: []*os.File{nil, nil, os.Stderr}, Budget: GraceBudget{Poll: 50 * time.Millisecond}}
	result, err := job.Run(renewedLease{time.Now()}, make(chan os.Signal, 1))
	if err != nil || result != (Result{}) {
		t.Errorf("Run = %+v, %v; want that the command succeeds", result, err)
	}
}

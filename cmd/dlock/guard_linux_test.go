package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A guard that was stopped, or starved, finds that the lease would have ended long
// ago by what it last read. The command is healthy all the same.
func TestStoppedGuardDoesNotKillAHealthyCommand(t *testing.T) {
	b := newBench(t)
	p := b.start("exec", "--ttl", "3s", "job", "--", "sh", "-c", "echo $PPID; while read line; do echo $line; done")
	guard := guardOf(t, p.pid())
	stopAndContinue(t, guard, 3500*time.Millisecond)
	fmt.Fprintln(p.stdin, "still here")
	if line := p.line(); line != "still here" {
		t.Fatalf("got %q", line)
	}
	p.stdin.Close()
	p.expect(0)
	if p.stderr.String() != "" {
		t.Errorf("stderr: %s", p.stderr.String())
	}
}

// stopAndContinue stops a process for that long, and returns when it has nothing
// to do any more.
func stopAndContinue(t *testing.T, pid int, length time.Duration) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	<-time.After(length) // the stop itself is what is tested
	if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	hasReadAll(t, pid)
}

// hasReadAll waits until a guard has read all records.
func hasReadAll(t *testing.T, pid int) {
	t.Helper()
	eventually(t, "the guard has read what was pending", func() bool {
		pipe, err := os.Open(fmt.Sprintf("/proc/%d/fd/0", pid))
		if err != nil {
			t.Fatal(err)
		}
		defer pipe.Close()
		pending, err := unix.IoctlGetInt(int(pipe.Fd()), unix.TIOCINQ)
		return err == nil && pending == 0
	})
}

// guarded is a guard of a process group that the test started.
type guarded struct {
	guard  *guardProcess
	group  int
	stderr string // the file
}

func newGuarded(t *testing.T) *guarded {
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
	return &guarded{guard, cmd.Process.Pid, stderr.Name()}
}

// said returns what the guard wrote to stderr, as soon as it wrote something.
func (g *guarded) said(t *testing.T) string {
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
	g.guard.watch(g.group, uptime()+time.Hour)
	if _, err := unix.FcntlInt(uintptr(g.guard.oldFd), unix.F_SETPIPE_SZ, 4096); err != nil {
		t.Fatal(err)
	}
	if err := g.guard.process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	for range 4096/recordSize + 10 { // more than there is room for
		g.guard.extend(uptime() - time.Second)
	}
	g.guard.extend(uptime() + time.Hour)
	stopAndContinue(t, g.guard.process.Pid, 0)
	if !alive(g.group) {
		t.Fatalf("the guard killed the group although the lease lasts; it says %s", g.said(t))
	}
	g.guard.extend(uptime() - time.Second)
	dead(t, "the group, after the lease has ended,", g.group)
	if said := g.said(t); said != "dlock: killed the command that ran under job: dlock was stopped or starved until the lease ended\n" {
		t.Errorf("it said %q", said)
	}
}

// The guard's last record may be old when it goes on. What is pending counts.
func TestGuardReadsWhatIsPendingBeforeItDecides(t *testing.T) {
	for what, write := range map[string]func(g *guardProcess){
		"record":   func(g *guardProcess) { g.extend(uptime() + time.Hour) },
		"farewell": func(g *guardProcess) { g.send(guardFarewell) },
	} {
		t.Run(what, func(t *testing.T) {
			g := newGuarded(t)
			until := uptime() + 2*time.Second
			g.guard.watch(g.group, until)
			hasReadAll(t, g.guard.process.Pid)
			if err := g.guard.process.Signal(syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			eventually(t, "the lease has ended", func() bool { return uptime() > until })
			write(g.guard)
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

// The guard says in one line why it killed the command.
func TestGuardSaysWhyItKills(t *testing.T) {
	b := newBench(t)
	p := b.start("exec", "my job", "--", "sh", "-c", family)
	grandchild, child := p.pid(), p.pid()
	p.signal(syscall.SIGKILL)
	p.wait()
	dead(t, "the command", child)
	dead(t, "its child", grandchild)
	eventually(t, "the guard says why", func() bool { return strings.HasSuffix(p.stderr.String(), "\n") })
	if said := p.stderr.String(); said != `dlock: killed the command that ran under "my job": dlock has ended and the command had not`+"\n" {
		t.Errorf("it said %q", said)
	}
}

// Who stops a service sends the signal to all of its processes at once. The guard
// must stay until the group has ended, which may be deaf to the signal.
func TestGuardSurvivesTheStopOfItsService(t *testing.T) {
	for _, s := range stopSignals {
		t.Run(s.String(), func(t *testing.T) {
			b := newBench(t)
			p := b.start("exec", "job", "--", "sh", "-c", `trap "" HUP INT QUIT TERM; sleep 1000 & echo $!; echo $$; echo $PPID; wait; wait`)
			grandchild, child, dlock := p.pid(), p.pid(), p.pid()
			guard := guardOf(t, dlock)
			hasReadAll(t, guard) // and is not just starting
			for _, pid := range []int{dlock, -child, guard} {
				if err := syscall.Kill(pid, s.(syscall.Signal)); err != nil {
					t.Fatal(err)
				}
			}
			p.signal(syscall.SIGKILL)
			p.wait()
			dead(t, "the command", child)
			dead(t, "its child", grandchild)
		})
	}
}

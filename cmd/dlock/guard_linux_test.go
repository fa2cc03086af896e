package main

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dlock-go/dlock/cmd/dlock/internal/supervise"
	"golang.org/x/sys/unix"
)

// A guard that was stopped, or starved, finds that the lease would have ended long
// ago by what it last read. The command is healthy all the same.
func TestStoppedGuardDoesNotKillAHealthyCommand(t *testing.T) {
	b := newBench(t)
	p := b.start("exec", "--ttl", "6s", "job", "--", "sh", "-c", "echo $PPID; while read line; do echo $line; done")
	guard := guardOf(t, p.pid())
	stopAndContinue(t, guard, 6500*time.Millisecond)
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

// Somebody kills the guard, the OOM killer for example, and later dlock.
func TestKilledGuardIsReplaced(t *testing.T) {
	b := newBench(t)
	p := b.start("exec", "job", "--", "sh", "-c", "echo $PPID;"+family)
	dlock, grandchild, child := p.pid(), p.pid(), p.pid()
	guard := guardOf(t, dlock)
	if err := syscall.Kill(guard, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	var next []int
	eventually(t, "there is another guard", func() bool {
		next = guardsOf(t, dlock)
		return len(next) == 1 && next[0] != guard
	})
	const records = 3 * 48 // bytes, more than it reads when it starts
	began := bytesRead(t, next[0])
	eventually(t, "it has read records", func() bool { return bytesRead(t, next[0]) > began+records })
	p.signal(syscall.SIGKILL)
	p.wait()
	dead(t, "the command", child)
	dead(t, "its child", grandchild)
}

// bytesRead returns how many bytes a process has read.
func bytesRead(t *testing.T, pid int) (n int64) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/io", pid))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Sscanf(string(text), "rchar: %d", &n); err != nil {
		t.Fatal(err)
	}
	return n
}

// Who stops a service sends the signal to all of its processes at once. The guard
// must stay until the group has ended, which may be deaf to the signal.
func TestGuardSurvivesTheStopOfItsService(t *testing.T) {
	for _, s := range supervise.StopSignals {
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

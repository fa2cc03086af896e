package main

import (
	"testing"
	"time"
)

// Without a shell that has job control, a command that asks for the terminal of another process group is
// stopped, and dlock neither spins nor stops.

// another keeps the terminal until "first" is typed.
const another = `dlock exec another -- sh -c '>up; read x; echo "another got $x"' </dev/tty & until [ -e up ]; do sleep 0.01; done; `

func TestStoppedCommandCostsNoTime(t *testing.T) {
	b := newBench(t)
	s := b.onScreen("sh", "-c", another+`dlock exec --max-hold 3s job -- sh -c 'read x </dev/tty'; echo status=$?; wait`)
	s.shows("dlock: the command is stopped")
	s.shows("status=76")
	s.press("first\n")
	s.shows("another got first")
	s.expect(0)
	used := s.cmd.ProcessState.UserTime() + s.cmd.ProcessState.SystemTime() // with all descendants
	t.Logf("all processes used %v of CPU time in three seconds", used)
	if used > time.Second {
		t.Errorf("all processes used %v of CPU time", used)
	}
}

// timeout(1) makes a process group of its own, and its parent is in the same session, but neither of them
// would continue a dlock that stops itself.
func TestDlockIsNotStoppedForASupervisor(t *testing.T) {
	b := newBench(t)
	s := b.onScreen("sh", "-c", `timeout 1000 dlock exec --max-hold 1s job -- sh -c 'read x </dev/tty'; echo status=$?`)
	s.shows("dlock: the command is stopped")
	s.shows("status=76")
	s.expect(0)
}

func TestStoppedCommandGetsTheTerminalWhenItIsFree(t *testing.T) {
	b := newBench(t)
	s := b.onScreen("sh", "-c", another+`dlock exec job -- sh -c 'read x </dev/tty; echo "job got $x"'`)
	s.shows("dlock: the command is stopped")
	s.press("first\n")
	s.shows("another got first")
	s.press("second\n")
	s.shows("job got second")
	s.expect(0)
}

func TestCtrlZWithoutAShellIsIgnored(t *testing.T) {
	b := newBench(t)
	s := b.onScreen(dlockBinary, "exec", "job", "--", "sh", "-c", "echo ready; exec cat")
	s.shows("ready")
	s.press("first\n")
	s.shows("first\r\nfirst\r\n") // the echo of the terminal, and cat
	s.press(ctrlZ)
	s.press("second\n")
	s.shows("second\r\nsecond\r\n")
	s.press("\x04") // end of input
	s.expect(0)
}

// The outer dlock notices that the inner one has stopped itself, and does so too.
func TestCtrlZReachesTheShellAroundANestedDlock(t *testing.T) {
	b := newBench(t)
	s := b.onScreen("sh", "-i")
	s.shows("prompt> ")
	s.press("dlock exec outer -- dlock exec inner -- sh -c 'echo rea''dy; exec cat'; echo status=$?\n")
	s.shows("ready") // and not its own echo
	s.press("first\n")
	s.shows("first\r\nfirst\r\n")
	s.press(ctrlZ)
	s.shows("status=1") // 128 + the signal
	s.shows("prompt> ")
	s.press("fg; echo status=$?\n")
	s.shows("dlock exec") // the shell says what goes on
	s.press("second\n")
	s.shows("second\r\nsecond\r\n")
	s.press("\x04")
	s.shows("status=0")
	s.press("exit\n")
	s.expect(0)
}

package main

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// screen is a pseudo-terminal with a program that has it as its own.
type screen struct {
	t        *testing.T
	keyboard *os.File
	seen     syncBuffer
	from     int // where the next look begins
	cmd      *exec.Cmd
	done     chan struct{}
}

// onScreen runs a program in a session of its own on a new terminal.
func (b *bench) onScreen(program string, args ...string) *screen {
	b.t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		b.t.Fatal(err)
	}
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		b.t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		b.t.Fatal(err)
	}
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		b.t.Fatal(err)
	}
	s := &screen{t: b.t, keyboard: master, cmd: exec.Command(program, args...), done: make(chan struct{})}
	s.cmd.Dir, s.cmd.Env = b.folder, slices.Concat(b.env, []string{"PS1=prompt> "})
	s.cmd.Stdin, s.cmd.Stdout, s.cmd.Stderr = slave, slave, slave
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := s.cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	slave.Close()
	go func() {
		buffer := make([]byte, 4096)
		for {
			n, err := master.Read(buffer)
			_, _ = s.seen.Write(buffer[:n])
			if err != nil {
				return
			}
		}
	}()
	go func() {
		defer close(s.done)
		_ = s.cmd.Wait()
	}()
	b.t.Cleanup(func() {
		_ = s.cmd.Process.Kill()
		master.Close()
	})
	return s
}

func (s *screen) press(keys string) {
	s.t.Helper()
	if _, err := s.keyboard.WriteString(keys); err != nil {
		s.t.Fatal(err)
	}
}

// shows waits until text appears after what earlier calls have found.
func (s *screen) shows(text string) {
	s.t.Helper()
	defer func() {
		if s.t.Failed() {
			s.t.Logf("the screen is %q", s.seen.String())
		}
	}()
	eventually(s.t, fmt.Sprintf("the screen shows %q", text), func() bool {
		now := s.seen.String()
		at := strings.Index(now[s.from:], text)
		if at >= 0 {
			s.from += at + len(text)
		}
		return at >= 0
	})
}

func (s *screen) expect(status int) {
	s.t.Helper()
	select {
	case <-s.done:
	case <-time.After(patient):
		s.t.Fatalf("still running; the screen:\n%s", s.seen.String())
	}
	if got := s.cmd.ProcessState.ExitCode(); got != status {
		s.t.Errorf("exit status %d, expected %d; the screen:\n%s", got, status, s.seen.String())
	}
}

const (
	ctrlC = "\x03"
	ctrlZ = "\x1a"
)

func TestCommandReadsTheTerminal(t *testing.T) {
	b := newBench(t)
	s := b.onScreen(dlockBinary, "exec", "job", "--", "sh", "-c", `echo ready; read x; echo "got $x"`)
	s.shows("ready")
	s.press("a line\n")
	s.shows("got a line")
	s.expect(0)
}

func TestTerminalIsTakenBack(t *testing.T) {
	b := newBench(t)
	s := b.onScreen("sh", "-c", `dlock exec job -- true; echo ready; read x; echo "got $x"`)
	s.shows("ready")
	s.press("a line\n")
	s.shows("got a line") // a shell in the background would be stopped here
	s.expect(0)
}

// In a pipeline the others keep the terminal until the command asks for it.
func TestTerminalInAPipeline(t *testing.T) {
	b := newBench(t)
	s := b.onScreen("sh", "-c", `dlock exec job -- sh -c 'echo up; exec sleep 1000' | { read up; echo ready; read x </dev/tty; echo "pager got $x"; }`)
	s.shows("ready")
	s.press("a line\n")
	s.shows("pager got a line")
	s.press(ctrlC)
	s.expect(-1)
	eventually(t, "the lock is free", func() bool { return b.dlock("show", "job").status == 1 })

	s = b.onScreen("sh", "-c", `dlock exec job -- sh -c 'echo ready >/dev/tty; read x; echo "command got $x"' | cat`)
	s.shows("ready")
	s.press("a line\n")
	s.shows("command got a line")
	s.expect(0)
}

// The commands below exec what they wait for: a shell that is interrupted just
// when it forks can miss it.
func TestCtrlCAtATerminal(t *testing.T) {
	b := newBench(t)
	s := b.onScreen(dlockBinary, "exec", "job", "--", "sh", "-c", "echo ready; exec sleep 1000")
	s.shows("ready")
	s.press(ctrlC)
	s.expect(130)
	b.must(1, "show", "job")

	// A script around it ends as well.
	s = b.onScreen("sh", "-c", `dlock exec job -- sh -c "echo ready; exec sleep 1000"; echo went on`)
	s.shows("ready")
	s.press(ctrlC)
	s.expect(-1)
	if strings.Contains(s.seen.String(), "went on") {
		t.Errorf("the script around dlock was not interrupted:\n%s", s.seen.String())
	}
}

func TestCtrlCWhileWaitingAtATerminal(t *testing.T) {
	b := newBench(t)
	b.holder("job")
	s := b.onScreen(dlockBinary, "exec", "job", "--", "echo", "no")
	s.shows("waiting for job, held by sh (pid ")
	s.press(ctrlC)
	s.expect(130)
}

func TestCtrlZ(t *testing.T) {
	b := newBench(t)
	s := b.onScreen("sh", "-i")
	s.shows("prompt> ")
	s.press("dlock exec --ttl 30s job -- sh -c 'echo rea''dy; exec cat'; echo status=$?\n")
	s.shows("ready") // and not its own echo
	s.press("first\n")
	s.shows("first\r\nfirst\r\n") // the echo of the terminal, and cat
	s.press(ctrlZ)
	s.shows("status=1") // 128 + SIGTSTP: the shell knows that it is stopped
	s.shows("prompt> ")
	b.must(0, "show", "job")
	s.press("fg; echo status=$?\n")
	s.shows("dlock exec") // the shell says what goes on
	s.press("second\n")
	s.shows("second\r\nsecond\r\n")
	s.press("\x04") // end of input
	s.shows("status=0")
	s.press("exit\n")
	s.expect(0)
}

func TestCtrlZForTooLong(t *testing.T) {
	b := newBench(t)
	s := b.onScreen("sh", "-i")
	s.shows("prompt> ")
	s.press("dlock exec --ttl 2s job -- sh -c 'echo rea''dy; read x; echo continued'\n")
	s.shows("ready")
	s.press(ctrlZ)
	s.shows("prompt> ")
	eventually(t, "the lock has expired", func() bool { return b.dlock("show", "job").status == 1 })
	s.press("fg; echo status=$?\n")
	s.shows("dlock: lost job")
	s.shows("status=76")
	s.press("exit\n")
	s.expect(0)
	if strings.Contains(s.seen.String(), "\ncontinued") {
		t.Errorf("the command went on without its lock:\n%s", s.seen.String())
	}
}

func TestColoursOnATerminal(t *testing.T) {
	b := newBench(t)
	b.onScreen(dlockBinary, "ls").shows("No lock is held.")
	b.holder("job")
	s := b.onScreen(dlockBinary, "ls")
	s.shows("\x1b[1mNAME\x1b[0m")
	s.shows("\x1b[32mjob\x1b[0m")
	s.expect(0)
	b.env = append(b.env, "NO_COLOR=1")
	s = b.onScreen(dlockBinary, "ls")
	s.shows("NAME")
	s.expect(0)
	if strings.Contains(s.seen.String(), "\x1b") {
		t.Errorf("NO_COLOR is not respected: %q", s.seen.String())
	}
}

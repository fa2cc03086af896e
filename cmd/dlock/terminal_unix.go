//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

func isTerminal(file *os.File) bool {
	if file == nil {
		return false
	}
	_, err := unix.IoctlGetWinsize(int(file.Fd()), unix.TIOCGWINSZ)
	return err == nil
}

// terminalWidth returns how many characters fit into a line; zero if that is unknown or
// the file is no terminal.
func terminalWidth(file *os.File) int {
	if file == nil {
		return 0
	}
	size, err := unix.IoctlGetWinsize(int(file.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0
	}
	return int(size.Col)
}

// ignoreTerminalStops lets reading a terminal that belongs to others fail, where it
// would stop dlock.
func ignoreTerminalStops() { signal.Ignore(syscall.SIGTTIN) }

// terminal is the controlling terminal. A nil one does nothing.
type terminal struct {
	fd   int
	own  int  // dlock's process group
	lent bool // the command's group is in the foreground
}

// openTerminal returns nil where there is no terminal. Call it after the
// command was started, which must not inherit that SIGTTOU is ignored.
func openTerminal() *terminal {
	fd, err := unix.Open("/dev/tty", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NOCTTY, 0)
	if err != nil {
		return nil
	}
	signal.Ignore(syscall.SIGTTOU) // to be able to take the terminal back
	return &terminal{fd: fd, own: unix.Getpgrp()}
}

func (t *terminal) close() {
	if t != nil {
		_ = unix.Close(t.fd)
	}
}

// foreground is the process group that has the terminal; -1 if that is unknown.
func (t *terminal) foreground() int {
	group, err := unix.IoctlGetInt(t.fd, unix.TIOCGPGRP)
	if err != nil {
		return -1
	}
	return group
}

// lend puts group in the foreground, if that is dlock's to give.
func (t *terminal) lend(group int) {
	if t == nil || t.foreground() != t.own {
		return
	}
	t.lent = unix.IoctlSetPointerInt(t.fd, unix.TIOCSPGRP, group) == nil
}

// reclaim puts dlock back in the foreground, if it was there before.
func (t *terminal) reclaim() {
	if t != nil && t.lent {
		_ = unix.IoctlSetPointerInt(t.fd, unix.TIOCSPGRP, t.own)
		t.lent = false
	}
}

// passOn lets the others in dlock's process group, such as a script around it,
// know of a Ctrl-C that only the command received.
func (t *terminal) passOn(s syscall.Signal) {
	if t != nil && t.lent && (s == syscall.SIGINT || s == syscall.SIGQUIT) {
		signal.Ignore(s)
		_ = syscall.Kill(0, s)
	}
}

// stopLimit is how long suspend waits for the kernel to stop dlock.
const stopLimit = time.Second

// stopped decides what it means that the command is stopped. Without a terminal
// somebody has a reason to stop it, and it keeps its lock.
func (j *job) stopped(held context.Context, by syscall.Signal) {
	t := j.terminal
	if t == nil || held.Err() != nil {
		return
	}
	wantsTerminal := by == syscall.SIGTTIN || by == syscall.SIGTTOU
	if wantsTerminal {
		t.lend(j.group)
	}
	switch {
	case wantsTerminal && t.foreground() == j.group: // it asked before it was lent
		j.kill(syscall.SIGCONT)
	case wantsTerminal, by == syscall.SIGTSTP && (t.lent || t.foreground() == t.own):
		j.suspend(held)
	}
}

// suspend stops dlock with its command, so that the shell notices. When dlock is
// continued the command goes on only if the lock is still held; otherwise it
// stays stopped and is ended by run.
func (j *job) suspend(held context.Context) {
	t := j.terminal
	t.reclaim()
	if t.shellWatches() {
		select { // an old one
		case <-j.continued:
		default:
		}
		// Not SIGTSTP, which the Go runtime goes on to catch once it was asked to.
		_ = syscall.Kill(0, syscall.SIGSTOP)
		select {
		case <-j.continued:
		case <-time.After(stopLimit):
		}
	}
	if held.Err() == nil {
		t.lend(j.group) // fg; after bg it is not ours to lend
		j.kill(syscall.SIGCONT)
	}
}

// shellWatches says whether there is a shell that would continue dlock. The
// group of a session leader has none, and then Ctrl-Z does nothing, as in any
// program.
func (t *terminal) shellWatches() bool {
	session, err := unix.Getsid(0)
	return err == nil && session != t.own && os.Getppid() != 1
}

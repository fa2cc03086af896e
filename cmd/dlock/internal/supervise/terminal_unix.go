//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package supervise

import (
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// IgnoreTerminalStops makes reading a terminal in the background fail, not stop the process.
func IgnoreTerminalStops() { signal.Ignore(syscall.SIGTTIN) }

// controllingTerminal is the terminal of dlock's session. A nil one does nothing.
type controllingTerminal struct {
	fd   int
	own  int  // dlock's process group
	lent bool // the command's group is in the foreground
}

// openTerminal returns nil if there is no terminal. It is called after the command has
// started, which must not inherit that SIGTTOU is ignored.
func openTerminal() *controllingTerminal {
	fd, err := unix.Open("/dev/tty", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NOCTTY, 0)
	if err != nil {
		return nil
	}
	signal.Ignore(syscall.SIGTTOU) // to be able to take the terminal back
	return &controllingTerminal{fd: fd, own: unix.Getpgrp()}
}

func (t *controllingTerminal) close() {
	if t != nil {
		_ = unix.Close(t.fd)
	}
}

// foreground returns the process group that has the terminal, or 0 if it is unknown.
func (t *controllingTerminal) foreground() int {
	group, _ := unix.IoctlGetInt(t.fd, unix.TIOCGPGRP)
	return group
}

// lend puts group in the foreground, if dlock's group is there.
func (t *controllingTerminal) lend(group int) {
	if t == nil || t.foreground() != t.own {
		return
	}
	t.lent = unix.IoctlSetPointerInt(t.fd, unix.TIOCSPGRP, group) == nil
}

// reclaim puts dlock's group back in the foreground, if it has lent the terminal.
func (t *controllingTerminal) reclaim() {
	if t != nil && t.lent {
		_ = unix.IoctlSetPointerInt(t.fd, unix.TIOCSPGRP, t.own)
		t.lent = false
	}
}

// passOn sends a Ctrl-C that only the command received to dlock's own process group,
// which may contain a script around dlock. dlock itself gets the next one in signals.
func (t *controllingTerminal) passOn(s syscall.Signal, signals chan<- os.Signal) {
	if t != nil && t.lent && (s == syscall.SIGINT || s == syscall.SIGQUIT) {
		signal.Ignore(s)
		_ = syscall.Kill(0, s)
		signal.Notify(signals, s)
	}
}

// stopped reacts to a command that was stopped by a signal. Without a terminal the stop
// is intended, and the command keeps its lock.
func (p *process) stopped(by syscall.Signal) {
	t := p.terminal
	if t == nil || p.held.Err() != nil {
		return
	}
	wantsTerminal := by == syscall.SIGTTIN || by == syscall.SIGTTOU
	if wantsTerminal {
		t.lend(p.group)
	}
	switch {
	case wantsTerminal && t.foreground() == p.group: // it has the terminal now
		p.kill(syscall.SIGCONT)
	case wantsTerminal, by == syscall.SIGTSTP && (t.lent || t.foreground() == t.own):
		p.suspend()
	}
}

// suspend stops dlock together with its command, so that the shell notices. Afterwards the
// command continues only if the lock is still held. Otherwise supervise ends it.
func (p *process) suspend() {
	t := p.terminal
	t.reclaim()
	if t.shellWatches() {
		select { // discard an old signal
		case <-p.continued:
		default:
		}
		// Not SIGTSTP: the Go runtime continues to catch it once it was asked to.
		_ = syscall.Kill(0, syscall.SIGSTOP)
		select {
		case <-p.continued:
		case <-time.After(time.Second): // the kernel has not stopped dlock
		}
	}
	if p.held.Err() == nil {
		t.lend(p.group) // succeeds after fg, not after bg
		p.kill(syscall.SIGCONT)
	}
}

// shellWatches reports whether there is a shell that would continue dlock.
func (t *controllingTerminal) shellWatches() bool {
	session, err := unix.Getsid(0)
	return err == nil && session != t.own && os.Getppid() != 1
}

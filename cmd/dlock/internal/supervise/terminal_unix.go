//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package supervise

import (
	"errors"
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
	if t != nil && t.foreground() == t.own {
		t.give(group)
	}
}

// offer is lend for a dlock without a shell above it. It also takes the terminal back from the
// group that dlock lent it to, or that group's jobs, and takes over that of a group that has ended. It reports
// whether group has the terminal.
func (t *controllingTerminal) offer(group int) bool {
	has := t.foreground()
	if has != group && (has == t.own || t.lent || errors.Is(syscall.Kill(-has, 0), syscall.ESRCH)) {
		t.give(group)
	}
	return t.foreground() == group
}

func (t *controllingTerminal) give(group int) {
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
//
// It reacts once between two polls, so that a command that is stopped again and again costs little.
func (p *process) stopped(by syscall.Signal) {
	t := p.terminal
	if t == nil || p.held.Err() != nil {
		return
	}
	wantsTerminal := by == syscall.SIGTTIN || by == syscall.SIGTTOU
	if !wantsTerminal && (by != syscall.SIGTSTP || !t.lent && t.foreground() != t.own) {
		return
	}
	if p.reacted {
		p.stop = by
		return
	}
	p.reacted = true
	switch {
	case !shellAbove(): // the kernel would not stop the command, if dlock were not between them
		if !wantsTerminal || t.offer(p.group) {
			p.kill(syscall.SIGCONT)
			return
		}
		p.stop = by // until the terminal is free
		if !p.reportedStop {
			p.reportedStop = true
			go p.OnStopped() // it may block
		}
	case wantsTerminal:
		t.lend(p.group)
		if t.foreground() == p.group { // it has the terminal now
			p.kill(syscall.SIGCONT)
			return
		}
		fallthrough
	default:
		p.suspend(by)
	}
}

// reactAgain reacts to a stop that came too soon, or whose command waits for the terminal.
func (p *process) reactAgain() {
	by := p.stop
	p.stop, p.reacted = 0, false
	if by != 0 {
		p.stopped(by)
	}
}

// suspend stops dlock together with its command, so that the shell notices. Afterwards the
// command continues only if the lock is still held. Otherwise supervise ends it.
func (p *process) suspend(by syscall.Signal) {
	p.terminal.reclaim()
	select { // discard an old signal
	case <-p.continued:
	default:
	}
	restore := stopGroup(by)
	select {
	case <-p.continued:
	case <-time.After(p.Budget.Poll): // the kernel has not stopped dlock
	}
	restore()
	if p.held.Err() == nil {
		p.terminal.lend(p.group) // succeeds after fg, not after bg
		p.kill(syscall.SIGCONT)
	}
}

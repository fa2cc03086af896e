//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package supervise

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"github.com/dlock-go/dlock/cmd/dlock/internal/terminal"
	"golang.org/x/sys/unix"
)

type process struct {
	*Job
	lease     Lease
	held      context.Context // of the lease; ends when the lock is lost
	leaseEnd  time.Duration   // the lease does not end before, by uptime
	group     int             // the process id of the command, which leads its group
	guard     *guardProcess
	terminal  *controllingTerminal
	signals   chan os.Signal
	continued chan os.Signal // SIGCONT
	reported  chan struct{}  // closed when OnLoss or OnLimit has returned
	result    Result

	// How stopped reacts to a command that was stopped.
	stop         syscall.Signal // react to it at the next poll; zero: none
	reacted      bool           // since the last poll
	reportedStop bool
}

// Run starts the command and blocks until it has ended. If the lock is lost, it ends the
// whole group. It forwards signals to the group. An error means that the command did not start.
//
// One goroutine sends all signals to the group and waits for its leader. So no signal can
// go to a process that has taken over the number of one that ended.
func (j *Job) Run(lease Lease, signals chan os.Signal) (Result, error) {
	// Before the start, so that no signal is missed.
	children := make(chan os.Signal, 1) // one pending signal stands for all
	signal.Notify(children, syscall.SIGCHLD)
	defer signal.Stop(children)
	signal.Notify(signals, forwardedSignals()...)
	p := &process{Job: j, lease: lease, held: lease.Context(), leaseEnd: uptime(), signals: signals, continued: make(chan os.Signal, 1)}
	signal.Notify(p.continued, syscall.SIGCONT)
	defer signal.Stop(p.continued)

	// The start. The parent-death signal is sent when the thread that forked ends.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := p.start(); err != nil {
		return Result{}, err
	}
	defer func() { p.guard.dismiss() }() // the last one

	// After the start: see openTerminal.
	p.terminal = openTerminal()
	defer p.terminal.close()
	if terminal.Is(j.Files[0]) && terminal.Is(j.Files[1]) {
		p.terminal.lend(p.group)
	}
	kill := p.supervise(children)
	if p.result.Interrupted && !p.result.Lost {
		p.awaitRest()
	}
	p.terminal.reclaim()
	if p.held.Err() != nil && !p.result.Lost {
		kill.Reset(p.endGroup(p.OnLoss))
	}
	if p.result.Lost {
		p.endRest(kill.C)
		select {
		case <-p.reported:
		case <-time.After(time.Second):
		}
	}
	return p.result, nil
}

// supervise blocks until the command has ended. It returns the timer of the kill after a loss.
func (p *process) supervise(children <-chan os.Signal) *time.Timer {
	poll := time.NewTicker(p.Budget.Poll)
	defer poll.Stop()
	kill := time.NewTimer(0)
	kill.Stop()
	lost, limit := p.held.Done(), p.Limit
	for !p.reap() {
		select {
		case <-children:
		case <-poll.C:
			p.updateLeaseEnd()
			p.replaceDeadGuard()
			p.guard.extend(p.group, p.leaseEnd)
			p.reactAgain()
		case s := <-p.signals:
			p.forward(s.(syscall.Signal))
		case <-p.continued:
			p.stop = 0
			if p.held.Err() == nil {
				p.kill(syscall.SIGCONT)
			}
		case <-lost:
			lost, limit = nil, nil
			kill.Reset(p.endGroup(p.OnLoss))
		case <-limit:
			lost, limit = nil, nil
			kill.Reset(p.endGroup(p.OnLimit))
		case <-kill.C:
			p.kill(syscall.SIGKILL)
			kill.Reset(100 * time.Millisecond) // bounds endRest, too
		}
	}
	return kill
}

func (p *process) start() error {
	guard, err := startGuard(p.Title, p.Files[2])
	if err != nil {
		return fmt.Errorf("%w: %w", ErrGuard, err)
	}
	starter, err := p.startStarter()
	if err == nil {
		if p.held.Err() == nil { // else the guard would say that it killed a command
			p.updateLeaseEnd() // starting may take long, and the lease was renewed meanwhile
			guard.extend(starter.pid, p.leaseEnd)
		}
		err = starter.become(p.held, p.Path)
	}
	if err != nil {
		guard.dismiss()
		return err
	}
	p.group, p.guard = starter.pid, guard
	return nil
}

// replaceDeadGuard starts another guard if somebody has killed the last one. The caller tells it the group.
func (p *process) replaceDeadGuard() {
	if !p.guard.hasEnded() {
		return
	}
	if guard, err := startGuard(p.Title, p.Files[2]); err == nil { // else the next call tries again
		p.guard.dismiss()
		p.guard = guard
	}
}

// reap reads the state of the command and reports whether it has ended.
func (p *process) reap() bool {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(p.group, &status, syscall.WNOHANG|syscall.WUNTRACED, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil || pid == 0:
			return err != nil
		case status.Stopped():
			p.stopped(status.StopSignal())
		case status.Signaled():
			number := status.Signal()
			p.result.Status = SignalStatus + int(number)
			p.result.Interrupted = p.result.Interrupted || IsStop(number)
			p.terminal.passOn(number, p.signals)
			return true
		default:
			p.result.Status = status.ExitStatus()
			return true
		}
	}
}

func (p *process) forward(s syscall.Signal) {
	p.result.Interrupted = p.result.Interrupted || IsStop(s)
	p.kill(s)
}

// kill sends a signal to the group. It does nothing if the group has ended.
func (p *process) kill(s syscall.Signal) { _ = syscall.Kill(-p.group, s) }

// endGroup begins to end the group and returns the time until the group must be killed.
func (p *process) endGroup(report func()) time.Duration {
	p.result.Lost = true
	left := min(p.Budget.Grace, p.leaseEnd-uptime())
	if left > 0 {
		p.kill(syscall.SIGTERM)
		p.kill(syscall.SIGCONT) // a stopped process does not handle SIGTERM
	} else {
		p.kill(syscall.SIGKILL)
	}
	p.reported = make(chan struct{})
	go func() { // a report that blocks on stderr must not keep the group alive
		defer close(p.reported)
		report()
	}()
	return max(left, 0)
}

// awaitRest blocks until the rest of the group has ended, which got the stop signal of its leader, the
// grace is over, or the lock is lost.
func (p *process) awaitRest() {
	poll := time.NewTicker(10 * time.Millisecond)
	defer poll.Stop()
	grace := time.After(p.Budget.Grace)
	for p.held.Err() == nil && syscall.Kill(-p.group, 0) == nil {
		select {
		case <-grace:
			return
		case <-poll.C:
			_, _ = syscall.Wait4(-p.group, nil, syscall.WNOHANG, nil) // as the first process of a container
		case s := <-p.signals:
			p.forward(s.(syscall.Signal))
		}
	}
}

// endRest blocks until a group without a leader is empty. It kills the rest when kill fires.
func (p *process) endRest(kill <-chan time.Time) {
	poll := time.NewTicker(10 * time.Millisecond)
	defer poll.Stop()
	for syscall.Kill(-p.group, 0) == nil {
		select {
		case <-kill:
			p.kill(syscall.SIGKILL)
			return
		case <-poll.C:
		case s := <-p.signals:
			p.forward(s.(syscall.Signal))
		}
	}
}

// updateLeaseEnd reads the remaining time of the lease. The time until the next update is
// subtracted, so that the group never lives until the very end of the lease.
func (p *process) updateLeaseEnd() {
	now := uptime()
	if remaining := p.lease.Remaining(); remaining > 0 {
		p.leaseEnd = now + remaining + p.Budget.Margin - p.Budget.Poll
	}
}

// uptime reads a clock that all processes share, and that cannot be set.
func uptime() time.Duration {
	var now unix.Timespec
	_ = unix.ClockGettime(uptimeClock, &now) // fails for an unknown clock only
	return time.Duration(now.Nano())
}

// notForwarded are the signals that concern dlock itself or cannot be caught.
var notForwarded = map[syscall.Signal]bool{
	syscall.SIGKILL: true, syscall.SIGSTOP: true,
	syscall.SIGCHLD: true, syscall.SIGURG: true, // used by the Go runtime
	syscall.SIGTTIN: true, syscall.SIGTTOU: true, // dlock's own use of the terminal
	syscall.SIGCONT: true, // forwarded by its own channel, unless the lock is lost
	syscall.SIGPIPE: true, // dlock's own output
}

// forwardedSignals returns all other signals, except HUP and INT if they are ignored: they stay so.
func forwardedSignals() []os.Signal {
	var all []os.Signal
	for number := syscall.Signal(1); number <= lastSignal; number++ {
		if !notForwarded[number] && !signal.Ignored(number) {
			all = append(all, number)
		}
	}
	return all
}

//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"
)

// job is a command that runs under a lock, in a process group of its own.
type job struct {
	name     string // of the lock, as it is shown
	path     string
	args     []string
	env      []string
	files    []*os.File // stdin, stdout, stderr
	patience patience
	onLoss   func()    // says that the lock is lost
	endAt    time.Time // when the command is ended though the lock is held; zero: never
	onLimit  func()    // says that it was held for too long

	group     int // the command's process, which leads its group
	guard     *guardProcess
	terminal  *terminal
	arrived   chan os.Signal
	continued chan os.Signal // SIGCONT
	end       ending
	vigil     vigil
	told      chan struct{} // closed when onLoss or onLimit has returned
}

// run starts the command and returns when it has ended. When the lock is lost the
// whole group is ended. An error says that the command did not start.
//
// All signals to the group and the wait for its leader are made by this one
// goroutine, so that no signal can go to a process that is gone.
func (j *job) run(l lease, arrived chan os.Signal) (ending, error) {
	held := l.Context()
	// The parent-death signal comes when the thread that forked is gone.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	children := make(chan os.Signal, 1) // one that waits to be read stands for all
	signal.Notify(children, syscall.SIGCHLD)
	defer signal.Stop(children)
	j.arrived = arrived
	signal.Notify(arrived, forwardedSignals()...)
	j.continued = make(chan os.Signal, 1)
	signal.Notify(j.continued, syscall.SIGCONT)
	defer signal.Stop(j.continued)

	j.vigil = newVigil(l, j.patience)
	if err := j.start(); err != nil {
		return ending{}, err
	}
	defer j.guard.dismiss()
	j.terminal = openTerminal()
	defer j.terminal.close()
	if isTerminal(j.files[0]) && isTerminal(j.files[1]) {
		j.terminal.lend(j.group)
	}

	beat := time.NewTicker(j.patience.beat)
	defer beat.Stop()
	lost := held.Done()
	kill := time.NewTimer(0)
	kill.Stop()
	var limit <-chan time.Time
	if !j.endAt.IsZero() {
		limit = time.After(time.Until(j.endAt))
	}
	for !j.reap(held) {
		select {
		case <-children:
		case <-beat.C:
			j.vigil.look()
			j.guard.extend(j.vigil.over)
		case s := <-arrived:
			j.signal(s.(syscall.Signal))
		case <-j.continued:
			if held.Err() == nil {
				j.signal(syscall.SIGCONT)
			}
		case <-lost:
			lost, limit = nil, nil
			kill.Reset(j.endGroup(j.onLoss))
		case <-limit:
			lost, limit = nil, nil
			kill.Reset(j.endGroup(j.onLimit))
		case <-kill.C:
			j.kill(syscall.SIGKILL)
		}
	}
	j.terminal.reclaim()
	if held.Err() != nil && !j.end.lost {
		kill.Reset(j.endGroup(j.onLoss))
	}
	if j.end.lost {
		j.outlast(kill.C)
		select {
		case <-j.told:
		case <-time.After(time.Second):
		}
	}
	return j.end, nil
}

func (j *job) start() error {
	guard, err := startGuard(j.name, j.files[2])
	if err != nil {
		return failf(exitUnavailable, "cannot start the process that guards the command, nothing was run: %w", err)
	}
	process, err := j.startStarter()
	if err != nil {
		guard.dismiss()
		return err
	}
	guard.watch(process.pid, j.vigil.over)
	if err := process.become(); err != nil {
		guard.dismiss()
		return err
	}
	j.group, j.guard = process.pid, guard
	return nil
}

// reap learns what became of the command, and says whether it has ended.
func (j *job) reap(held context.Context) bool {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(j.group, &status, syscall.WNOHANG|syscall.WUNTRACED, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil || pid == 0:
			return err != nil
		case status.Stopped():
			j.stopped(held, status.StopSignal())
		case status.Signaled():
			number := status.Signal()
			j.end.status = exitSignal + int(number)
			j.end.interrupted = j.end.interrupted || isStopSignal(number)
			j.terminal.passOn(number)
			return true
		default:
			j.end.status = status.ExitStatus()
			return true
		}
	}
}

// signal forwards a signal to the whole group.
func (j *job) signal(s syscall.Signal) {
	j.end.interrupted = j.end.interrupted || isStopSignal(s)
	j.kill(s)
}

// kill sends a signal to the group, which may be gone.
func (j *job) kill(s syscall.Signal) { _ = syscall.Kill(-j.group, s) }

// endGroup begins to end the group, says why, and returns the time until it must be
// killed.
func (j *job) endGroup(say func()) time.Duration {
	j.end.lost = true
	left := j.vigil.graceLeft()
	if left > 0 {
		j.kill(syscall.SIGTERM)
		j.kill(syscall.SIGCONT) // one that is stopped would not hear it
	} else {
		j.kill(syscall.SIGKILL)
	}
	j.told = make(chan struct{})
	go func() { // stderr may block, and the group must not live on for that
		defer close(j.told)
		say()
	}()
	return max(left, 0)
}

// outlast waits until the rest of a group whose leader has ended is gone, and
// kills it when its time is over.
func (j *job) outlast(over <-chan time.Time) {
	poll := time.NewTicker(10 * time.Millisecond)
	defer poll.Stop()
	for syscall.Kill(-j.group, 0) == nil {
		select {
		case <-over:
			j.kill(syscall.SIGKILL)
			return
		case <-poll.C:
		case s := <-j.arrived:
			j.signal(s.(syscall.Signal))
		}
	}
}

// notForwarded are signals about dlock itself, or ones that it cannot catch.
var notForwarded = map[syscall.Signal]bool{
	syscall.SIGKILL: true, syscall.SIGSTOP: true,
	syscall.SIGCHLD: true, syscall.SIGURG: true, // the runtime's own
	syscall.SIGTTIN: true, syscall.SIGTTOU: true, // about dlock's own use of the terminal
	syscall.SIGCONT: true, // forwarded by its own channel, unless the lock is lost
	syscall.SIGPIPE: true, // see below
}

// forwardedSignals are all others. One that is ignored, by nohup for example,
// stays so, for the command too.
func forwardedSignals() []os.Signal {
	// Without this a closed stderr would end dlock and leave the command alone.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	var all []os.Signal
	for number := syscall.Signal(1); number <= lastSignal; number++ {
		if !notForwarded[number] && !signal.Ignored(number) {
			all = append(all, number)
		}
	}
	return all
}

// Package supervise runs a command under a lock, in a process group of its own, and ends the
// whole group before the lease of the lock can end, even if dlock itself is killed or stopped.
package supervise

import (
	"context"
	"errors"
	"os"
	"slices"
	"syscall"
	"time"
)

// Lease is the part of a *dlock.Lease or *dlock.Leases that a job needs.
type Lease interface {
	Context() context.Context // ends when the lock is lost
	Remaining() time.Duration // until the lock counts as lost, unless it is renewed
}

// Job is a command that runs under a lock.
type Job struct {
	Title   string // the names of the locks, as they are shown
	Path    string
	Args    []string
	Env     []string
	Files   []*os.File // stdin, stdout, stderr
	Budget  GraceBudget
	OnLoss  func()    // called when the lock is lost
	EndAt   time.Time // when the command is ended even if the lock is held; zero: never
	OnLimit func()    // called at EndAt
}

// Result is how a command ended.
type Result struct {
	Status      int  // its exit status, 128+n if signal n ended it
	Lost        bool // the lock was lost, or EndAt came, before it ended
	Interrupted bool // it received a signal of StopSignals
}

// ErrGuard is wrapped by the error of Run if the command was not started because no
// process could guard it.
var ErrGuard = errors.New("cannot start the process that guards the command, nothing was run")

// SignalStatus is added to the number of the signal that ended a command.
const SignalStatus = 128

// StopSignals ask a program to end.
var StopSignals = []os.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM}

// IsStop reports whether s is one of StopSignals.
func IsStop(s os.Signal) bool { return slices.Contains(StopSignals, s) }

// limit returns a channel that receives at EndAt, or nil if there is no such time.
func (j *Job) limit() <-chan time.Time {
	if j.EndAt.IsZero() {
		return nil
	}
	return time.After(time.Until(j.EndAt))
}

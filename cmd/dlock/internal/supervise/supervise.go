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

// Lease is the part of a *dlock.Leases that a job needs.
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
	OnLoss  func()           // called when the lock is lost
	Limit   <-chan time.Time // ends the command even if the lock is held; may be nil
	OnLimit func()           // called at the limit

	// OnStopped is called once if the command is stopped until another process group gives up the terminal.
	OnStopped func()
}

// Result is how a command ended.
type Result struct {
	Status      int  // its exit status, 128+n if signal n ended it
	Lost        bool // the lock was lost, or the limit came, before it ended
	Interrupted bool // it received a signal of StopSignals
}

// ErrGuard is wrapped by the error of Run if no process could guard the command.
var ErrGuard = errors.New("cannot start the process that guards the command, nothing was run")

// ErrLost is returned by Run if the lock was lost before the command could start.
var ErrLost = errors.New("the lock was lost, nothing was run")

// SignalStatus is added to the number of the signal that ended a command.
const SignalStatus = 128

// StopSignals ask a program to end.
var StopSignals = []os.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM}

// IsStop reports whether s is one of StopSignals.
func IsStop(s os.Signal) bool { return slices.Contains(StopSignals, s) }

// GraceBudget is how the TTL of a lease is split for the time after a loss.
type GraceBudget struct {
	Margin time.Duration // from the loss to the end of the lease
	Grace  time.Duration // from TERM to KILL
	Poll   time.Duration // how often the remaining time of the lease is read
}

// SplitTTL fits the grace, and a reserve for all else that takes time, into a third of the
// TTL, the largest margin that a lease can have.
func SplitTTL(ttl, grace time.Duration) GraceBudget {
	third := ttl / 3
	reserve := min(time.Second, third/4)
	margin := min(grace, third-reserve) + reserve // grace+reserve could overflow
	return GraceBudget{
		Margin: margin,
		Grace:  margin - reserve,
		Poll:   max(reserve/4, 5*time.Millisecond),
	}
}

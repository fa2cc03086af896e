package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/dlock-go/dlock"
)

// The exit statuses of dlock itself. Those of sysexits.h are kept apart from
// what commands usually return.
const (
	exitOK            = 0
	exitNo            = 1   // show: not held; break: not held with that token; doctor: a problem; demo: with a lock it went wrong too
	exitUsage         = 64  // EX_USAGE
	exitUnavailable   = 69  // EX_UNAVAILABLE
	exitNotAcquired   = 75  // EX_TEMPFAIL
	exitLost          = 76  // EX_PROTOCOL
	exitDenied        = 77  // EX_NOPERM
	exitMisconfigured = 78  // EX_CONFIG
	exitNotExecutable = 126 // as shells have it
	exitNotFound      = 127 // as shells have it
	exitSignal        = 128 // plus the number of the signal
)

const exitStatusHelp = `Exit status:
  The status of COMMAND passes through; 128+n when signal n ended it.
    1  the answer is no (show: not held; break: not held with that token;
       doctor: found a problem; demo: it went wrong with a lock too)
   64  wrong usage
   69  the store cannot be reached
   75  the lock was not acquired (exec can choose another, -E)
   76  the lock was lost while the command ran, or held for --max-hold
   77  the store refuses the user: a wrong password, or a right that is missing
   78  the store cannot keep locks as it is: no such database, a full disk, ...
  126  the command cannot be executed
  127  the command was not found
  130  interrupted with Ctrl-C while waiting; 128+n for another signal n`

// statusError is an error that knows its exit status.
type statusError struct {
	status int
	err    error // nil: there is nothing to say
}

func (e *statusError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit status %d", e.status)
	}
	return e.err.Error()
}

func (e *statusError) Unwrap() error { return e.err }

// exitWith ends dlock with a status and no message.
func exitWith(status int) error {
	if status == exitOK {
		return nil
	}
	return &statusError{status: status}
}

func failf(status int, format string, values ...any) error {
	return &statusError{status, fmt.Errorf(format, values...)}
}

func usagef(format string, values ...any) error {
	return failf(exitUsage, format, values...)
}

func isSilent(err error) bool {
	var e *statusError
	return errors.As(err, &e) && e.err == nil
}

// interruptedError is what ends dlock when a signal arrives.
type interruptedError struct {
	number  int
	waiting bool // for a lock, which was not acquired
}

func (i interruptedError) Error() string { return fmt.Sprintf("interrupted by signal %d", i.number) }

// exitStatus maps every error to a documented status. What cobra finds wrong
// with a command line comes without a status of its own and is wrong usage.
func exitStatus(err error) int {
	var own *statusError
	if err == nil {
		return exitOK
	}
	if errors.As(err, &own) {
		return own.status
	}
	return exitUsage
}

// classify gives an error of the library or of a store its exit status.
func classify(err error) error {
	var own *statusError
	var signal interruptedError
	switch {
	case err == nil || errors.As(err, &own):
		return err
	case errors.As(err, &signal):
		return exitWith(exitSignal + signal.number)
	case errors.Is(err, dlock.ErrHeld):
		return &statusError{exitNotAcquired, err}
	case errors.Is(err, dlock.ErrBadName), errors.Is(err, dlock.ErrBadTTL), errors.Is(err, dlock.ErrUnsupported):
		return &statusError{exitUsage, err}
	case errors.Is(err, dlock.ErrLost), errors.Is(err, dlock.ErrNotHeld):
		return &statusError{exitLost, err}
	case errors.Is(err, dlock.ErrDenied), errors.Is(err, fs.ErrPermission):
		return &statusError{exitDenied, err}
	case errors.Is(err, dlock.ErrMisconfigured):
		return &statusError{exitMisconfigured, err}
	case errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, dlock.ErrUnreachable):
		return failf(exitUnavailable, "the store did not answer in time: %w", err)
	default:
		return &statusError{exitUnavailable, err}
	}
}

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/cmd/dlock/internal/stores"
	"github.com/dlock-go/dlock/cmd/dlock/internal/supervise"
	"github.com/dlock-go/dlock/cmd/dlock/internal/terminal"
)

// The exit statuses of dlock itself, from sysexits.h: commands rarely use these.
const (
	exitOK            = 0
	exitNo            = 1   // show: not held; break: not held with that token; doctor: a problem
	exitUsage         = 64  // EX_USAGE
	exitUnavailable   = 69  // EX_UNAVAILABLE
	exitOutput        = 74  // EX_IOERR
	exitNotAcquired   = 75  // EX_TEMPFAIL
	exitLost          = 76  // EX_PROTOCOL
	exitDenied        = 77  // EX_NOPERM
	exitMisconfigured = 78  // EX_CONFIG
	exitNotExecutable = 126 // as in shells
	exitNotFound      = 127 // as in shells
)

const exitStatusHelp = `Exit status:
  The status of COMMAND passes through; 128+n when signal n ended it.
    1  the answer is no (show: not held; break: not held with that token;
       doctor: found a problem)
   64  wrong usage
   69  the store cannot be reached
   74  the output cannot be written
   75  the lock was not acquired (exec can choose another status with -E)
   76  the lock was lost while the command ran, or held for --max-hold
   77  the store refuses the user: a wrong password, or a missing right
   78  the store cannot keep locks as it is: no such database, a full disk, ...
  126  the command cannot be executed
  127  the command was not found
  130  interrupted with Ctrl-C while waiting; 128+n for another signal n`

type statusError struct {
	status int
	err    error // nil: dlock prints nothing
}

func (e *statusError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit status %d", e.status)
	}
	return e.err.Error()
}

func (e *statusError) Unwrap() error { return e.err }

// exitWith ends dlock with a status and no message. It returns an error even if the status is 0.
func exitWith(status int) error { return &statusError{status: status} }

func failf(status int, format string, values ...any) error {
	return &statusError{status, fmt.Errorf(format, values...)}
}

func usagef(format string, values ...any) error { return failf(exitUsage, format, values...) }

func isSilent(err error) bool {
	own, ok := errors.AsType[*statusError](err)
	return ok && own.err == nil
}

type interruptedError struct {
	signal   os.Signal
	answered bool // by the store, before the signal
}

func (i interruptedError) Error() string { return fmt.Sprintf("interrupted by signal %d", i.signal) }

// exitStatus returns the status of an error. Errors of cobra have none and are wrong usage.
func exitStatus(err error) int {
	if err == nil {
		return exitOK
	}
	if own, ok := errors.AsType[*statusError](err); ok {
		return own.status
	}
	return exitUsage
}

func classify(err error) error {
	if err == nil || errors.As(err, new(*statusError)) {
		return err
	}
	if interrupted, ok := errors.AsType[interruptedError](err); ok {
		number, _ := interrupted.signal.(syscall.Signal)
		return exitWith(supervise.SignalStatus + int(number))
	}
	status := exitUnavailable
	switch {
	case errors.As(err, new(*stores.URLError)):
		status = exitUsage
	case errors.Is(err, terminal.ErrOutput):
		status = exitOutput
	case errors.Is(err, dlock.ErrHeld):
		status = exitNotAcquired
	case errors.Is(err, dlock.ErrBadName), errors.Is(err, dlock.ErrBadTTL), errors.Is(err, dlock.ErrUnsupported), errors.Is(err, dlock.ErrMode):
		status = exitUsage
	case errors.Is(err, dlock.ErrLost), errors.Is(err, dlock.ErrNotHeld):
		status = exitLost
	case errors.Is(err, dlock.ErrDenied), errors.Is(err, fs.ErrPermission):
		status = exitDenied
	case errors.Is(err, dlock.ErrMisconfigured):
		status = exitMisconfigured
	case errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, dlock.ErrUnreachable):
		err = fmt.Errorf("the store did not answer in time: %w", err)
	}
	return &statusError{status, err}
}

// quotesArgs reports whether an error may quote words of the command line, which may be
// misplaced store URLs. Errors of stores contain no secrets.
func quotesArgs(err error) bool {
	switch exitStatus(err) {
	case exitUsage, exitNotExecutable, exitNotFound:
		return !isSilent(err) && !errors.As(err, new(*stores.URLError))
	}
	return false
}

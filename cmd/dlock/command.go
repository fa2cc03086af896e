package main

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/dlock-go/dlock/cmd/dlock/internal/supervise"
	"github.com/dlock-go/dlock/cmd/dlock/internal/terminal"
)

// findCommand looks a command up as a shell does.
func findCommand(name string) (string, error) {
	path, err := exec.LookPath(name)
	switch {
	case err == nil, errors.Is(err, exec.ErrDot): // PATH contains the current folder
		return path, nil
	case filepath.Base(name) != name:
		return "", cannotStart(name, err)
	}
	for _, folder := range filepath.SplitList(os.Getenv("PATH")) {
		if info, err := os.Stat(filepath.Join(folder, name)); name != "" && err == nil && !info.IsDir() {
			return "", cannotStart(name, fs.ErrPermission)
		}
	}
	return "", cannotStart(name, fs.ErrNotExist)
}

// cannotStart explains why a command does not run, with the exit status of shells.
func cannotStart(name string, err error) error {
	switch {
	case errors.Is(err, supervise.ErrGuard): // not the command's fault
		return &statusError{exitUnavailable, err}
	case errors.Is(err, fs.ErrNotExist) || errors.Is(err, exec.ErrNotFound) || errors.Is(err, syscall.ENOTDIR):
		return failf(exitNotFound, "command not found: %s", terminal.Quote(name))
	case errors.Is(err, syscall.ENOEXEC):
		return failf(exitNotExecutable, "cannot execute %s: it is neither a program nor a script with a #! line", terminal.Quote(name))
	}
	if detail, ok := errors.AsType[*fs.PathError](err); ok {
		err = detail.Err
	} else if lookup, ok := errors.AsType[*exec.Error](err); ok {
		err = lookup.Err
	}
	return failf(exitNotExecutable, "cannot execute %s: %s", terminal.Quote(name), strings.TrimPrefix(err.Error(), "exec: "))
}

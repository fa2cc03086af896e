package main

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// findCommand looks a command up as a shell does, so that a command that
// cannot run is known before the lock is waited for.
func findCommand(name string) (string, error) {
	path, err := exec.LookPath(name)
	switch {
	case err == nil, errors.Is(err, exec.ErrDot): // PATH says that the current folder is fine
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

// cannotStart explains why a command does not run, with the status of shells.
func cannotStart(name string, err error) error {
	var own *statusError
	switch {
	case errors.As(err, &own): // it is not the command's fault
		return err
	case errors.Is(err, fs.ErrNotExist) || errors.Is(err, exec.ErrNotFound) || errors.Is(err, syscall.ENOTDIR):
		return failf(exitNotFound, "command not found: %s", harmless(name))
	case errors.Is(err, syscall.ENOEXEC):
		return failf(exitNotExecutable, "cannot execute %s: it is neither a program nor a script with a #! line", harmless(name))
	}
	var detail *fs.PathError
	if errors.As(err, &detail) {
		err = detail.Err
	}
	var lookup *exec.Error
	if errors.As(err, &lookup) {
		err = lookup.Err
	}
	return failf(exitNotExecutable, "cannot execute %s: %s", harmless(name), strings.TrimPrefix(err.Error(), "exec: "))
}

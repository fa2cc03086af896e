//go:build darwin || freebsd || netbsd || openbsd || dragonfly

package main

import (
	"os"
	"syscall"
	"time"
)

const lastSignal = syscall.Signal(31)

// childAttributes put the command into a group of its own. That it dies with
// dlock is left to the guard.
func childAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

func executable() (string, error) { return os.Executable() }

func uptime() time.Duration { return time.Since(started) }

var started = time.Now()

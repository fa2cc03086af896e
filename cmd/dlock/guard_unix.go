//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
)

// The guard is a second dlock process that outlives the first: when dlock is
// killed it kills the command's group. The parent-death signal, where there is
// one, reaches the command alone and not what it has started.
//
// dlock writes the number of the group into a pipe, and a farewell when the
// command has ended. If the pipe ends without that, dlock is dead.

const (
	guardName     = "dlock-guard" // its argv[0]
	guardFarewell = "ended"
)

func isGuard(args []string) bool { return len(args) == 1 && args[0] == guardName }

// guard is the whole program of the guard.
func guard(pipe io.Reader) int {
	signal.Ignore(stopSignals...) // a stop of the whole service must not end it first
	lines := bufio.NewScanner(pipe)
	group := 0
	for lines.Scan() {
		if lines.Text() == guardFarewell {
			return 0
		}
		group, _ = strconv.Atoi(strings.TrimSpace(lines.Text()))
	}
	if group > 1 {
		_ = syscall.Kill(-group, syscall.SIGKILL)
	}
	return 0
}

// guardProcess is the guard as dlock sees it.
type guardProcess struct {
	process *os.Process
	pipe    *os.File
}

// startGuard runs before the command, so that there is no moment without one.
func startGuard() (*guardProcess, error) {
	self, err := executable()
	if err != nil {
		return nil, err
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer read.Close()
	process, err := os.StartProcess(self, []string{guardName}, &os.ProcAttr{
		Dir:   "/", // it must not keep a file system busy
		Files: []*os.File{read, null, null},
		Sys:   &syscall.SysProcAttr{Setsid: true}, // out of reach of the terminal
	})
	if err != nil {
		write.Close()
		return nil, fmt.Errorf("cannot start the guard: %w", err)
	}
	return &guardProcess{process, write}, nil
}

// watch tells which group dies with dlock.
func (g *guardProcess) watch(group int) { fmt.Fprintln(g.pipe, group) }

// dismiss ends the guard: the command needs none any more.
func (g *guardProcess) dismiss() {
	fmt.Fprintln(g.pipe, guardFarewell)
	_ = g.pipe.Close()
	_, _ = g.process.Wait()
}

//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package main

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// The guard is a second dlock process that outlives the first: it kills the
// command's group when dlock is killed, and when dlock is stopped for so long
// that the lease ends. The parent-death signal, where there is one, reaches the
// command alone and not what it has started.
//
// dlock writes lines into a pipe: the number of the group, then again and again
// for how long the lease lasts at least, and a farewell when the command has
// ended. If the pipe ends without that, dlock is dead.

const (
	guardName     = "dlock-guard" // its argv[0]
	guardFarewell = "ended"
	guardPatience = time.Second // for a guard that does not go
)

func isGuard(args []string) bool { return len(args) == 1 && args[0] == guardName }

// guard is the whole program of the guard.
func guard(pipe io.Reader) int {
	signal.Ignore(stopSignals...) // a stop of the whole service must not end it first
	lines := make(chan string)
	go func() {
		defer close(lines)
		for scanner := bufio.NewScanner(pipe); scanner.Scan(); {
			lines <- scanner.Text()
		}
	}()
	over := time.NewTimer(0)
	over.Stop()
	group, until := 0, time.Duration(math.MaxInt64)
	end := func() { // the numbers of groups that are gone are not used again soon
		if group > 1 {
			_ = syscall.Kill(-group, syscall.SIGKILL)
		}
	}
	for {
		select {
		case line, open := <-lines:
			number, _ := strconv.ParseInt(strings.TrimSpace(line), 10, 64)
			switch {
			case !open:
				end()
				return 0
			case line == guardFarewell:
				return 0
			case group == 0:
				group = int(number)
			default:
				until = time.Duration(number)
				over.Reset(until - uptime())
			}
		case <-over.C:
			if left := until - uptime(); left > 0 {
				over.Reset(left)
			} else {
				end() // dlock says more when it goes on
			}
		}
	}
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
		return nil, err
	}
	return &guardProcess{process, write}, nil
}

// watch tells which group dies with dlock.
func (g *guardProcess) watch(group int) { fmt.Fprintln(g.pipe, group) }

// extend tells the instant, by uptime, before which the lease is not over. A guard
// that does not listen, because somebody stopped it, must not stop dlock.
func (g *guardProcess) extend(until time.Duration) {
	_ = g.pipe.SetWriteDeadline(time.Now().Add(time.Millisecond))
	fmt.Fprintln(g.pipe, int64(until))
}

// dismiss ends the guard: the command needs none any more.
func (g *guardProcess) dismiss() {
	_ = g.pipe.SetWriteDeadline(time.Now().Add(guardPatience))
	fmt.Fprintln(g.pipe, guardFarewell)
	_ = g.pipe.Close()
	insist := time.AfterFunc(guardPatience, func() { _ = g.process.Kill() })
	defer insist.Stop()
	_, _ = g.process.Wait()
}

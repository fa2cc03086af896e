//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package main

import (
	"errors"
	"fmt"
	"math"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// The guard is a second dlock process that outlives the first: it kills the
// command's group when dlock is killed, and when dlock is stopped for so long
// that the lease ends. The parent-death signal, where there is one, reaches the
// command alone and not what it has started.
//
// dlock writes records into a pipe: the number of the group and the instant
// before which the lease does not end, again and again, and a farewell when the
// command has ended. If the pipe ends without that, dlock is dead.
//
// The guard may be stopped or starved itself. The pipe then fills with old records
// while the command is healthy, so the guard reads all of them before it decides,
// and dlock replaces them by the newest one when there is no room left.

const (
	guardName     = "dlock-guard" // its argv[0]; what the lock is called in messages follows
	guardFarewell = "ended"
	guardPatience = time.Second // for a guard that does not go

	// recordSize is the length of every record. Both ends read whole records,
	// because writes of that size are atomic and all reads are multiples of it.
	recordSize = 48
	// guardLook bounds one wait, since timers stop while a machine is suspended
	// and uptime does not.
	guardLook = time.Second
)

func isGuard(args []string) bool { return len(args) == 2 && args[0] == guardName }

// guard is the whole program of the guard. Its pipe is stdin.
func guard(args []string) int {
	// A stop of the whole service must not end it first, nor a closed stderr.
	signal.Ignore(append(slices.Clone(stopSignals), syscall.SIGPIPE)...)
	g := ward{name: args[1], until: math.MaxInt64}
	buffer := make([]byte, 100*recordSize)
	for {
		pending, err := waitReadable(syscall.Stdin, g.until-uptime())
		switch {
		case err != nil:
			g.kill("the guard cannot read what dlock says: " + err.Error())
			return exitUnavailable
		case !pending && g.until <= uptime():
			g.kill("dlock was stopped or starved until the lease ended")
			g.until = math.MaxInt64 // until dlock goes on
			continue
		case !pending:
			continue
		}
		n, err := unix.Read(syscall.Stdin, buffer)
		switch {
		case errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.EINTR): // dlock took old records out
			continue
		case err != nil || n == 0:
			g.kill("dlock has ended and the command had not")
			return exitOK
		}
		for record := range slices.Chunk(buffer[:n], recordSize) {
			if farewell := g.take(string(record)); farewell {
				return exitOK
			}
		}
	}
}

// waitReadable reports whether there is something to read, waiting for it at most
// for that long. What is there already is reported even if no time is left.
func waitReadable(fd int, limit time.Duration) (bool, error) {
	limit = min(max(limit, 0), guardLook)
	ready := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	n, err := unix.Poll(ready, int((limit+time.Millisecond-1)/time.Millisecond))
	if errors.Is(err, syscall.EINTR) {
		return false, nil
	}
	return n > 0, err
}

// ward is what the guard knows of the command.
type ward struct {
	name  string        // of the lock, as it is shown
	group int           // zero until dlock has said it
	until time.Duration // the lease does not end before, by uptime
	said  bool          // why it was killed
}

// take learns from a record, and reports whether it is the farewell.
func (g *ward) take(record string) bool {
	fields := strings.Fields(record)
	if len(fields) == 1 && fields[0] == guardFarewell {
		return true
	}
	if len(fields) != 2 {
		return false // never written
	}
	group, err := strconv.Atoi(fields[0])
	until, err2 := strconv.ParseInt(fields[1], 10, 64)
	if err == nil && err2 == nil {
		g.group, g.until = group, time.Duration(until)
	}
	return false
}

// kill ends the group and says why, once. The numbers of groups that are gone are
// not used again soon.
func (g *ward) kill(why string) {
	if g.group <= 1 {
		return
	}
	_ = syscall.Kill(-g.group, syscall.SIGKILL)
	if !g.said {
		fmt.Fprintf(os.Stderr, "dlock: killed the command that ran under %s: %s\n", harmlessLines(g.name), why)
	}
	g.said = true
}

// guardProcess is the guard as dlock sees it.
type guardProcess struct {
	process *os.Process
	group   int
	pipe    *os.File
	old     *os.File // the guard's end of the pipe, to take old records out
	oldFd   int      // of old, whose Fd would make it block
}

// startGuard runs before the command, so that there is no moment without one.
func startGuard(name string, stderr *os.File) (*guardProcess, error) {
	self, err := executable()
	if err != nil {
		return nil, err
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	if stderr == nil {
		stderr = null
	}
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	process, err := os.StartProcess(self, []string{guardName, name}, &os.ProcAttr{
		Dir:   "/", // it must not keep a file system busy
		Files: []*os.File{read, null, stderr},
		Sys:   &syscall.SysProcAttr{Setsid: true}, // out of reach of the terminal
	})
	oldFd := int(read.Fd())
	if err == nil {
		err = syscall.SetNonblock(oldFd, true) // otherwise discard could wait for records
	}
	if err != nil {
		read.Close()
		write.Close()
		return nil, err
	}
	return &guardProcess{process: process, pipe: write, old: read, oldFd: oldFd}, nil
}

// watch tells which group dies with dlock, and the instant, by uptime, before which
// the lease does not end.
func (g *guardProcess) watch(group int, until time.Duration) {
	g.group = group
	g.extend(until)
}

// extend tells that the lease does not end before an instant, by uptime.
func (g *guardProcess) extend(until time.Duration) {
	g.send(fmt.Sprintf("%d %d", g.group, int64(until)))
}

// send writes a record, and never waits. A guard that does not read, because it was
// stopped, must not stop dlock, and must find the newest record when it goes on.
func (g *guardProcess) send(text string) {
	record := fmt.Appendf(nil, "%-*s\n", recordSize-1, text)
	if errors.Is(g.write(record), syscall.EAGAIN) { // the pipe is full
		g.discard()
		_ = g.write(record)
	}
}

// write tries once. A deadline would not do: it may be over before a starved process
// comes to write.
func (g *guardProcess) write(record []byte) (err error) {
	pipe, err := g.pipe.SyscallConn()
	if err != nil {
		return err
	}
	failed := pipe.Write(func(fd uintptr) bool {
		for {
			if _, err = unix.Write(int(fd), record); !errors.Is(err, syscall.EINTR) {
				return true
			}
		}
	})
	return errors.Join(err, failed)
}

// discard takes all records out of the pipe.
func (g *guardProcess) discard() {
	buffer := make([]byte, 100*recordSize)
	for {
		n, err := unix.Read(g.oldFd, buffer)
		if n <= 0 && !errors.Is(err, syscall.EINTR) {
			return
		}
	}
}

// dismiss ends the guard: the command needs none any more.
func (g *guardProcess) dismiss() {
	g.send(guardFarewell)
	_ = g.pipe.Close()
	insist := time.AfterFunc(guardPatience, func() { _ = g.process.Kill() })
	defer insist.Stop()
	_, _ = g.process.Wait()
	_ = g.old.Close()
}

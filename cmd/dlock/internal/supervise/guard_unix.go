//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package supervise

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

	"github.com/dlock-go/dlock/cmd/dlock/internal/terminal"
	"golang.org/x/sys/unix"
)

// The guard is a second process of dlock. It kills the command's group if dlock is killed, or
// stopped until the lease ends. A parent-death signal would reach only the command itself.
//
// dlock writes records into a pipe: the number of the group and the instant before which
// the lease does not end, and a last record when the command has ended. If the pipe ends
// without the last record, dlock was killed.
//
// While the guard itself is stopped, the pipe fills with old records. So the guard reads all
// of them before it decides, and dlock replaces them by the newest one when the pipe is full.

const (
	guardName      = "dlock-guard" // its argv[0]; the title of the locks follows
	lastRecord     = "ended"
	guardExitLimit = time.Second // until a guard that has read the last record is killed
	recordSize     = 48          // of every record: a write of it is atomic, all reads are multiples of it
	maxGuardWait   = time.Second // timers stop while the machine is suspended, and uptime does not

	statusUnavailable   = 69
	statusNotExecutable = 126
)

// init runs the guard or the starter if the arguments are those of one. At that time Go has
// initialised the few packages that this one imports, and not yet the packages of the stores. It
// would take ten times as long as what the starter does.
//
//nolint:gochecknoinits // main is too late, as the comment says
func init() {
	args := os.Args
	switch {
	case len(args) == 2 && args[0] == guardName:
		os.Exit(runGuard(args[1]))
	case len(args) > 4 && args[0] == starterName:
		os.Exit(runStarter(args))
	}
}

// runGuard is the program of the guard. Its stdin is the pipe.
func runGuard(title string) int {
	// Stopping the whole service must not end the guard first, nor a closed stderr.
	signal.Ignore(append(slices.Clone(StopSignals), syscall.SIGPIPE)...)
	g := guarded{title: title, until: math.MaxInt64}
	buffer := make([]byte, 100*recordSize)
	for {
		pending, err := waitReadable(syscall.Stdin, g.until-uptime())
		switch {
		case err != nil:
			g.kill("the guard cannot read what dlock says: " + err.Error())
			return statusUnavailable
		case !pending && g.until <= uptime():
			g.kill("dlock was stopped or starved until the lease ended")
			g.until = math.MaxInt64 // until dlock goes on
			continue
		case !pending:
			continue
		}
		n, err := unix.Read(syscall.Stdin, buffer)
		switch {
		case errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.EINTR): // dlock removed old records
			continue
		case err != nil || n == 0:
			g.kill("dlock has ended and the command had not")
			return 0
		}
		for record := range slices.Chunk(buffer[:n], recordSize) {
			if last := g.read(string(record)); last {
				return 0
			}
		}
	}
}

// waitReadable blocks until fd can be read, at most for limit, and reports whether it can.
func waitReadable(fd int, limit time.Duration) (bool, error) {
	limit = min(max(limit, 0), maxGuardWait)
	ready := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	n, err := unix.Poll(ready, int((limit+time.Millisecond-1)/time.Millisecond))
	if errors.Is(err, syscall.EINTR) {
		return false, nil
	}
	return n > 0, err
}

type guarded struct {
	title    string
	group    int           // zero until the first record
	until    time.Duration // the lease does not end before, by uptime
	reported bool
}

// read takes over a record and reports whether it is the last one.
func (g *guarded) read(record string) bool {
	fields := strings.Fields(record)
	if len(fields) != 2 {
		return len(fields) == 1 && fields[0] == lastRecord
	}
	group, err := strconv.Atoi(fields[0])
	until, err2 := strconv.ParseInt(fields[1], 10, 64)
	if err == nil && err2 == nil {
		g.group, g.until = group, time.Duration(until)
	}
	return false
}

// kill kills the group and says why, once.
func (g *guarded) kill(reason string) {
	if g.group <= 1 {
		return
	}
	_ = syscall.Kill(-g.group, syscall.SIGKILL)
	if !g.reported {
		fmt.Fprintf(os.Stderr, "dlock: killed the command that ran under %s: %s\n", terminal.Escape(g.title), reason)
	}
	g.reported = true
}

// guardProcess is the guard as dlock sees it.
type guardProcess struct {
	process *os.Process
	pipe    *os.File
	writeFd int      // of pipe, whose method Fd would make it block
	readEnd *os.File // the guard's end of the pipe, to remove old records
	readFd  int
}

func startGuard(title string, stderr *os.File) (*guardProcess, error) {
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
	process, err := os.StartProcess(self, []string{guardName, title}, &os.ProcAttr{
		Dir:   "/", // it must not keep a file system busy
		Files: []*os.File{read, null, stderr},
		Sys:   &syscall.SysProcAttr{Setsid: true}, // out of reach of the terminal
	})
	if err != nil {
		read.Close()
		write.Close()
		return nil, err
	}
	g := &guardProcess{process, write, int(write.Fd()), read, int(read.Fd())}
	// Neither discard nor write may block.
	if err := errors.Join(syscall.SetNonblock(g.readFd, true), syscall.SetNonblock(g.writeFd, true)); err != nil {
		g.dismiss()
		return nil, err
	}
	return g, nil
}

// extend tells the guard its group, and the uptime before which the lease does not end.
func (g *guardProcess) extend(group int, until time.Duration) {
	g.send(fmt.Sprintf("%d %d", group, int64(until)))
}

// send writes a record. It never blocks: a guard that is stopped must not stop dlock.
func (g *guardProcess) send(text string) {
	record := fmt.Appendf(nil, "%-*s\n", recordSize-1, text)
	if errors.Is(g.write(record), syscall.EAGAIN) { // the pipe is full
		g.discard()
		_ = g.write(record)
	}
}

// write tries once. A write deadline could pass before a starved process gets to write.
func (g *guardProcess) write(record []byte) error {
	for {
		if _, err := unix.Write(g.writeFd, record); !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}

func (g *guardProcess) discard() {
	buffer := make([]byte, 100*recordSize)
	for {
		n, err := unix.Read(g.readFd, buffer)
		if n <= 0 && !errors.Is(err, syscall.EINTR) {
			return
		}
	}
}

// hasEnded reports whether the guard does not run any more.
func (g *guardProcess) hasEnded() bool {
	pid, err := syscall.Wait4(g.process.Pid, nil, syscall.WNOHANG, nil)
	return pid > 0 || errors.Is(err, syscall.ECHILD)
}

// dismiss ends the guard, because the command has ended or another guard takes over.
func (g *guardProcess) dismiss() {
	g.send(lastRecord)
	_ = g.pipe.Close()
	kill := time.AfterFunc(guardExitLimit, func() { _ = g.process.Kill() })
	defer kill.Stop()
	_, _ = g.process.Wait()
	_ = g.readEnd.Close()
}

// Package child runs processes that take orders and give answers, a line each, over their standard input
// and output:
//
//	p, err := child.Start(cmd, nil)       // in a test: p := child.Run(t, cmd)
//	err = p.Send("lock x")                // or p.SendJSON(order)
//	line, err := p.Receive(time.Minute)   // the next line, if receive is nil
//	err = p.Pause(); err = p.Resume()
//	p.Kill()                              // or err = p.Stop(limit), which ends its input
//
// [Self] is the command that starts this program again. A process should end when its input does. On Linux
// it also dies with its parent, even if it is paused.
package child

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// Process is a process, as its parent sees it. It is safe for concurrent use.
type Process struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	mu    sync.Mutex    // guards writes to in
	lines chan string   // what Receive returns
	drop  func()        // drops all further lines
	ended chan struct{} // closed after the last line
	wait  func() error
}

// Self returns the command that starts this program again, with more variables in its environment.
func Self(env ...string) *exec.Cmd {
	program, err := os.Executable()
	if err != nil {
		program = os.Args[0]
	}
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), env...)
	return cmd
}

// Run starts a process for a test, and kills it when the test ends.
func Run(t testing.TB, cmd *exec.Cmd) *Process {
	t.Helper()
	p, err := Start(cmd, nil)
	if err != nil {
		t.Fatalf("start %s: %v", cmd.Path, err)
	}
	t.Cleanup(p.Kill)
	return p
}

// Start starts a process. It calls receive with each line that the process writes, one after the other,
// without the end of the line. If receive is nil, Receive returns the lines. What the process writes to
// standard error goes to that of this process unless cmd says otherwise.
func Start(cmd *exec.Cmd, receive func(line string)) (*Process, error) {
	const unread = 100 // lines; the process waits when there are more
	p := &Process{cmd: cmd, lines: make(chan string, unread), ended: make(chan struct{}), wait: sync.OnceValue(cmd.Wait)}
	dropped := make(chan struct{})
	p.drop = sync.OnceFunc(func() { close(dropped) })
	if receive == nil {
		receive = func(line string) {
			select {
			case p.lines <- line:
			case <-dropped:
			}
		}
	}
	if cmd.Stderr == nil {
		cmd.Stderr = os.Stderr
	}
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = Attributes()
	}
	var err error
	if p.in, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := Begin(cmd); err != nil {
		return nil, err
	}
	go func() {
		defer close(p.ended)
		for in := bufio.NewReader(out); ; { // not a Scanner, which limits the length of a line
			line, err := in.ReadString('\n')
			if line != "" {
				receive(strings.TrimSuffix(line, "\n"))
			}
			if err != nil {
				return
			}
		}
	}()
	return p, nil
}

// PID returns the ID of the process.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Send sends a line to the process.
func (p *Process) Send(line string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, err := io.WriteString(p.in, line+"\n")
	return err
}

// SendJSON sends a value to the process, in JSON.
func (p *Process) SendJSON(value any) error {
	line, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return p.Send(string(line))
}

// Receive returns the next line that the process writes. It returns an error if there is none within limit,
// and io.EOF after the last.
func (p *Process) Receive(limit time.Duration) (line string, err error) {
	return next(p.lines, p.ended, limit)
}

func next(lines <-chan string, ended <-chan struct{}, limit time.Duration) (line string, err error) {
	select {
	case line = <-lines:
		return line, nil
	case <-ended:
		select {
		case line = <-lines: // the last one
			return line, nil
		default:
			return "", fmt.Errorf("the process has ended: %w", io.EOF)
		}
	case <-time.After(limit):
		return "", fmt.Errorf("the process wrote nothing for %v", limit)
	}
}

// Ended is closed when the process has ended, or closed its output, and the last line has been received.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// Kill ends the process without a chance to clean up. Lines that nothing has received yet may be dropped.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill() // it may have ended
	p.drop()
	<-p.ended
	_ = p.wait() // reports the kill
}

// Stop ends the input of the process, and returns when the process has ended, with the error of its end. It
// kills a process that has not ended after limit.
func (p *Process) Stop(limit time.Duration) error {
	_ = p.in.Close() // the process may have ended
	p.drop()
	select {
	case <-p.ended:
		return p.wait()
	case <-time.After(limit):
		p.Kill()
		return fmt.Errorf("it has not ended after %v", limit)
	}
}

// starts passes functions to a thread that lives as long as this process.
var starts = sync.OnceValue(func() chan<- func() {
	work := make(chan func())
	go func() {
		runtime.LockOSThread()
		for do := range work {
			do()
		}
	}()
	return work
})

// Begin is cmd.Start from a thread that lives as long as this process. Linux sends the signal that ends a
// process with its parent when the thread that forked ends, and Go may end other threads at any time.
func Begin(cmd *exec.Cmd) error {
	result := make(chan error)
	starts() <- func() { result <- cmd.Start() }
	return <-result
}

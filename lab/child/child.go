// Package child runs the processes of the laboratory. The parent describes the task of a process in
// an environment variable, because every user of the machine sees the arguments of a process.
// Then both exchange JSON, one value a line, over the standard input and output of the process, which
// ends when its input does.
package child

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"
)

// variable holds the task of a process: an object with the field role. Programs in Java read it, too.
const variable = "DLOCK_LAB_WORKER"

// Run runs the process of a role if this program was started as one. Otherwise ok is false.
func Run(roles map[string]func(task []byte) error) (err error, ok bool) { //nolint:revive // ok comes last
	task := os.Getenv(variable)
	if task == "" {
		return nil, false
	}
	var t struct{ Role string }
	if err := json.Unmarshal([]byte(task), &t); err != nil {
		return err, true
	}
	role := roles[t.Role]
	if role == nil {
		return fmt.Errorf("unknown role %q of a process", t.Role), true
	}
	return role([]byte(task)), true
}

// Process is a process, as its parent sees it.
type Process struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	ended chan struct{} // closed after the last line
	wait  func() error
}

// Start starts a command with a task, and calls receive with each line that it writes. What it
// writes to standard error goes to log.
func Start(command []string, task any, log io.Writer, receive func(line []byte)) (*Process, error) {
	text, err := json.Marshal(task)
	if err != nil {
		return nil, err
	}
	p := &Process{cmd: exec.Command(command[0], command[1:]...), ended: make(chan struct{})}
	p.wait = sync.OnceValue(p.cmd.Wait)
	p.cmd.Env = append(os.Environ(), variable+"="+string(text))
	p.cmd.Stderr = log
	p.cmd.SysProcAttr = Attributes()
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(p.ended)
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			receive(lines.Bytes())
		}
		_, _ = io.Copy(io.Discard, out) // a process that cannot write would not end
	}()
	return p, nil
}

// Send sends a value to the process.
func (p *Process) Send(value any) error {
	line, err := json.Marshal(value)
	if err != nil {
		return err
	}
	_, err = p.in.Write(append(line, '\n'))
	return err
}

// Ended is closed when the process has written its last line, and receive has been called with it.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// Kill ends the process without a chance to clean up.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.ended
	_ = p.wait() // reports the kill
}

// Stop ends the input of the process, and returns when the process has ended. It kills a process that
// has not ended after limit.
func (p *Process) Stop(limit time.Duration) error {
	_ = p.in.Close() // the process may have ended
	select {
	case <-p.ended:
		return p.wait()
	case <-time.After(limit):
		p.Kill()
		return fmt.Errorf("it has not ended after %v", limit)
	}
}

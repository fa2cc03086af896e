// Package child runs the processes of a demo. Parent and child exchange JSON over the child's
// stdin and stdout, so that no list of processes shows a secret. A child ends when its stdin
// does, so that it does not outlive a parent that was killed; on Linux even one that is stopped
// dies with its parent.
package child

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/dlock-go/dlock/cmd/dlock/internal/supervise"
)

const (
	grace       = 3 * time.Second // until a child that does not end is killed
	stderrLimit = 4 << 10         // of what is shown
)

// Process is a child, as its parent sees it. It is not safe for concurrent use.
type Process struct {
	ctx    context.Context
	cmd    *exec.Cmd
	in     io.WriteCloser
	pipe   io.Reader
	out    *json.Decoder // of pipe
	stderr bytes.Buffer
}

// Send sends a value to the child.
func (p *Process) Send(value any) error { return json.NewEncoder(p.in).Encode(value) }

// Receive blocks until the child has sent a value. The error is the cause of the context if
// that has ended, and otherwise what the child wrote to stderr.
func (p *Process) Receive(value any) error {
	err := p.out.Decode(value)
	switch {
	case err == nil:
		return nil
	case p.ctx.Err() != nil:
		return context.Cause(p.ctx)
	}
	p.Wait() // for stderr
	if text := strings.TrimSpace(p.stderr.String()); text != "" {
		return errors.New(text[max(0, len(text)-stderrLimit):])
	}
	return fmt.Errorf("%s ended without a message: %w", p.cmd.Args[0], err)
}

// Step lets the child do its next step and receives the result.
func (p *Process) Step(result any) error {
	if err := p.Send(true); err != nil {
		return err
	}
	return p.Receive(result)
}

// CloseInput asks the child to end.
func (p *Process) CloseInput() { _ = p.in.Close() } // fails if the child has ended

// Wait asks the child to end and blocks until it has. It kills a child that does not end.
func (p *Process) Wait() {
	p.CloseInput()
	kill := time.AfterFunc(grace, func() { _ = p.cmd.Process.Kill() })
	defer kill.Stop()
	_, _ = io.Copy(io.Discard, p.pipe) // a child that cannot write would not end
	_ = p.cmd.Wait()                   // Receive has returned its errors
}

// Group is several children that end together.
type Group []*Process

// Start starts this program n times with role as its argv[0], sends each child the task and
// receives its first value. When ctx ends, the stdin of the children is closed, and children
// that do not end then are killed. The caller waits for the group even if there is an error.
func Start[T any](ctx context.Context, n int, role string, task any) (g Group, first []T, err error) {
	runtime.LockOSThread() // until Wait: on Linux a child dies with the thread that started it
	for range n {
		process, err := start(ctx, role)
		if err != nil {
			return g, nil, err
		}
		g = append(g, process)
		if err := process.Send(task); err != nil {
			return g, nil, fmt.Errorf("cannot write to %s: %w", role, err)
		}
	}
	first, err = ReceiveAll[T](g)
	return g, first, err
}

func start(ctx context.Context, role string) (*Process, error) {
	self, err := supervise.Executable()
	if err != nil {
		return nil, err
	}
	p := &Process{ctx: ctx, cmd: exec.CommandContext(ctx, self)}
	p.cmd.Args = []string{role}
	p.cmd.Stderr = &p.stderr
	p.cmd.WaitDelay = grace
	p.cmd.SysProcAttr = supervise.ChildAttributes() // Ctrl-C is for the parent, which ends its children
	if p.in, err = p.cmd.StdinPipe(); err == nil {
		p.pipe, err = p.cmd.StdoutPipe()
	}
	if err != nil {
		return nil, err
	}
	p.cmd.Cancel = p.in.Close
	p.out = json.NewDecoder(p.pipe)
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("cannot start this program again: %w", err)
	}
	return p, nil
}

// Wait is Wait of all children. The goroutine that called Start calls it once.
func (g Group) Wait() {
	defer runtime.UnlockOSThread()
	var all sync.WaitGroup
	for _, process := range g {
		all.Go(process.Wait)
	}
	all.Wait()
}

// ReceiveAll receives a value from each child.
func ReceiveAll[T any](g Group) ([]T, error) {
	values := make([]T, len(g))
	for i, process := range g {
		if err := process.Receive(&values[i]); err != nil {
			return nil, err
		}
	}
	return values, nil
}

// Parent is the parent, as a child sees it.
type Parent struct {
	// Context ends when the parent wants the child to end, or has ended itself.
	Context context.Context

	values chan json.RawMessage
	out    *json.Encoder
}

// Attach connects a child to its parent.
func Attach(in io.Reader, out io.Writer) *Parent {
	ctx, cancel := context.WithCancel(context.Background())
	p := &Parent{Context: ctx, values: make(chan json.RawMessage, 1), out: json.NewEncoder(out)}
	go func() {
		defer cancel()
		defer close(p.values)
		for decoder := json.NewDecoder(in); ; {
			var value json.RawMessage
			if decoder.Decode(&value) != nil {
				return
			}
			p.values <- value
		}
	}()
	return p
}

// ErrEnd says that the parent has closed the child's stdin.
var ErrEnd = errors.New("the parent wants the child to end")

// Receive blocks until the parent has sent a value.
func (p *Parent) Receive(value any) error {
	text, ok := <-p.values
	if !ok {
		return ErrEnd
	}
	return json.Unmarshal(text, value)
}

// Send sends a value to the parent.
func (p *Parent) Send(value any) error { return p.out.Encode(value) }

// AwaitStep sends a value and blocks until the parent wants the next step.
func (p *Parent) AwaitStep(value any) error {
	if err := p.Send(value); err != nil {
		return err
	}
	var next bool
	return p.Receive(&next)
}

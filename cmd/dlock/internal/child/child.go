// Package child starts this program again in another role. Parent and child speak
// JSON, one value a line, over the child's input and output: what is secret, such
// as a store URL, appears in no list of processes. A child ends when its input does,
// so that none outlives a parent that was killed.
package child

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// grace is how long a child may take to end before it is killed.
const grace = 3 * time.Second

// message is a line that a child writes: a value, or why there is none.
type message struct {
	Failure *ToldError      `json:"failure,omitempty"`
	Value   json.RawMessage `json:"value,omitempty"`
}

// ToldError is what a child has told of something that went wrong.
type ToldError struct {
	Text   string `json:"text"`
	Status int    `json:"status"` // the exit status that goes with it
}

func (e *ToldError) Error() string { return e.Text }

// Process is a child, as its parent sees it. One goroutine may use it.
type Process struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	pipe   io.Reader
	out    *json.Decoder // of pipe
	stderr tail
}

// Start starts program, which is to find role as its own name, and gives it its first
// order. When the context ends the child's input does, and a child that does not go
// then is killed.
func Start(ctx context.Context, program, role string, order any) (*Process, error) {
	p := &Process{cmd: exec.CommandContext(ctx, program)}
	p.cmd.Args = []string{role}
	p.cmd.Stderr = &p.stderr
	p.cmd.WaitDelay = grace
	p.cmd.SysProcAttr = ownGroup()
	in, err := p.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	p.in = in
	p.cmd.Cancel = in.Close
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.pipe, p.out = out, json.NewDecoder(out)
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("cannot start this program again: %w", err)
	}
	if err := p.Tell(order); err != nil {
		p.Wait()
		return nil, fmt.Errorf("cannot speak to %s: %w", role, err)
	}
	return p, nil
}

// Tell gives the child its next order.
func (p *Process) Tell(order any) error { return json.NewEncoder(p.in).Encode(order) }

// Hear waits for the next value. The error is a [*ToldError] if the child has told
// one.
func (p *Process) Hear(value any) error {
	var m message
	if err := p.out.Decode(&m); err != nil {
		if said := p.stderr.String(); said != "" {
			return fmt.Errorf("%s ended: %s", p.cmd.Args[0], said)
		}
		return fmt.Errorf("%s ended without a word: %w", p.cmd.Args[0], err)
	}
	if m.Failure != nil {
		return m.Failure
	}
	return json.Unmarshal(m.Value, value)
}

// Dismiss ends the child's input, which asks it to say its last and go.
func (p *Process) Dismiss() { _ = p.in.Close() } // a child that is gone has nothing to be told

// Wait dismisses the child and waits until it is gone. It has been killed if that
// took too long.
func (p *Process) Wait() {
	p.Dismiss()
	insist := time.AfterFunc(grace, func() { _ = p.cmd.Process.Kill() })
	defer insist.Stop()
	_, _ = io.Copy(io.Discard, p.pipe) // or it could not say its last, and would stay
	_ = p.cmd.Wait()                   // what matters has been said
}

// tail keeps the end of what is written to it.
type tail struct {
	mu   sync.Mutex
	text []byte
}

const tailLimit = 4 << 10

func (t *tail) Write(text []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, text...)
	if extra := len(t.text) - tailLimit; extra > 0 {
		t.text = bytes.Clone(t.text[extra:])
	}
	return len(text), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(string(t.text))
}

// Parent is the other end, as a child sees it.
type Parent struct {
	// Context ends when the parent wants the child to go, or is gone itself.
	Context context.Context

	orders chan json.RawMessage
	out    *json.Encoder
}

// Attach connects a child to its parent.
func Attach(in io.Reader, out io.Writer) *Parent {
	ctx, cancel := context.WithCancel(context.Background())
	p := &Parent{Context: ctx, orders: make(chan json.RawMessage, 1), out: json.NewEncoder(out)}
	go func() {
		defer cancel()
		defer close(p.orders)
		for decoder := json.NewDecoder(in); ; {
			var order json.RawMessage
			if decoder.Decode(&order) != nil {
				return
			}
			p.orders <- order
		}
	}()
	return p
}

// ErrDismissed says that there are no more orders.
var ErrDismissed = errors.New("dismissed")

// Hear waits for the next order.
func (p *Parent) Hear(order any) error {
	text, ok := <-p.orders
	if !ok {
		return ErrDismissed
	}
	return json.Unmarshal(text, order)
}

// Tell says something to the parent.
func (p *Parent) Tell(value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return p.out.Encode(message{Value: text})
}

// Fail tells the parent why there is nothing else to say.
func (p *Parent) Fail(text string, status int) {
	_ = p.out.Encode(message{Failure: &ToldError{Text: text, Status: status}}) // a parent that is gone needs no reasons
}

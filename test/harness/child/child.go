// Package child drives a child process over lines of text, whatever language it
// is written in. Each line to the process is the name of a thread and an order.
// The process answers with a line that begins with the same name. Threads are
// independent: one thread can wait for a lock while another executes orders. The
// first line of the process is "main ready".
package child

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"
)

// limit bounds the wait for an answer, so that a process that hangs does not hang
// the test.
const limit = 60 * time.Second

// Process is a child process of a test. It is safe for concurrent use.
type Process struct {
	cmd   *exec.Cmd
	ended chan struct{} // closed after the last answer

	mu      sync.Mutex
	in      io.Writer
	answers map[string]chan string // by the name of the thread
}

// Start starts cmd, waits until it is ready, and ends it when the test ends. If
// the test binary dies, the process ends by itself at the end of its input.
func Start(t testing.TB, cmd *exec.Cmd) *Process {
	t.Helper()
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatalf("start %s: %v", cmd.Path, err)
	}
	p := &Process{cmd: cmd, ended: make(chan struct{}), in: in, answers: make(map[string]chan string)}
	ready := &Thread{t, p, "main", p.answersOf("main")}
	go p.listen(out)
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-p.ended
		_ = cmd.Wait()
	})
	ready.Expect("ready")
	return p
}

// listen delivers each answer to its thread.
func (p *Process) listen(out io.Reader) {
	defer close(p.ended)
	for lines := bufio.NewScanner(out); lines.Scan(); {
		name, answer, _ := strings.Cut(lines.Text(), " ")
		p.answersOf(name) <- answer
	}
}

func (p *Process) answersOf(name string) chan string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.answers[name] == nil {
		p.answers[name] = make(chan string, 100) // more than the orders in flight in any test
	}
	return p.answers[name]
}

// Kill ends the process without a chance to clean up.
func (p *Process) Kill(t testing.TB) {
	t.Helper()
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatalf("kill: %v", err)
	}
	<-p.ended
}

// Thread returns a new thread of the process, for use in the test t.
func (p *Process) Thread(t testing.TB) *Thread {
	p.mu.Lock()
	name := fmt.Sprint("t", len(p.answers))
	p.answers[name] = make(chan string, 100)
	p.mu.Unlock()
	return &Thread{t, p, name, p.answersOf(name)}
}

// Thread executes its orders one after the other.
type Thread struct {
	t       testing.TB
	process *Process
	name    string
	answers chan string
}

// Send sends an order without waiting for the answer.
func (th *Thread) Send(words ...any) {
	th.t.Helper()
	line := th.name + " " + fmt.Sprintln(words...)
	th.process.mu.Lock()
	defer th.process.mu.Unlock()
	if _, err := io.WriteString(th.process.in, line); err != nil {
		th.t.Fatalf("send %q: %v", line, err)
	}
}

// Expect waits for the next answer, whose first word must be want, and returns its
// other words.
func (th *Thread) Expect(want string) []string {
	th.t.Helper()
	words := th.Receive()
	if words[0] != want {
		th.t.Fatalf("the process answered %q, want %q", words, want)
	}
	return words[1:]
}

// Receive waits for the next answer and returns its words.
func (th *Thread) Receive() []string {
	th.t.Helper()
	select {
	case answer := <-th.answers:
		return strings.Split(answer, " ")
	case <-th.process.ended:
		select {
		case answer := <-th.answers: // the last answer
			return strings.Split(answer, " ")
		default:
			th.t.Fatal("the process has ended without an answer")
		}
	case <-time.After(limit):
		th.t.Fatalf("the process did not answer for %v", limit)
	}
	return nil
}

// Answers returns the channel of answers, for tests that wait for several events
// at once.
func (th *Thread) Answers() <-chan string { return th.answers }

// Package child drives a process that obeys lines, in whatever language it is
// written. A line is the name of a thread and an order; the process answers with
// a line that begins with the same name. What is told to one thread does not keep
// another one waiting, so that a process can wait for a lock and still obey. The
// first line of a process is "main ready".
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

// limit is how long an answer may take. It is no measure of anything: it keeps a
// process that hangs from hanging the test.
const limit = 60 * time.Second

// Process is a process that was started by a test. Many goroutines may use it.
type Process struct {
	cmd   *exec.Cmd
	ended chan struct{} // closed when there are no more answers

	mu      sync.Mutex
	in      io.Writer
	answers map[string]chan string // by the name of the thread
}

// Start starts cmd, waits until it is ready, and ends it when the test is over. A
// process whose test died ends by itself, at the end of its input.
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
	ready := &Thread{t, p, "main", p.hearsFrom("main")}
	go p.listen(out)
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-p.ended
		_ = cmd.Wait()
	})
	ready.Hear("ready")
	return p
}

// listen hands each answer to whoever waits for it.
func (p *Process) listen(out io.Reader) {
	defer close(p.ended)
	for lines := bufio.NewScanner(out); lines.Scan(); {
		name, answer, _ := strings.Cut(lines.Text(), " ")
		p.hearsFrom(name) <- answer
	}
}

func (p *Process) hearsFrom(name string) chan string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.answers[name] == nil {
		p.answers[name] = make(chan string, 100) // nobody gives so many orders without listening
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

// Thread returns a new thread of the process, for a test of its own.
func (p *Process) Thread(t testing.TB) *Thread {
	p.mu.Lock()
	name := fmt.Sprint("t", len(p.answers))
	p.answers[name] = make(chan string, 100)
	p.mu.Unlock()
	return &Thread{t, p, name, p.hearsFrom(name)}
}

// Thread obeys its orders one after the other.
type Thread struct {
	t       testing.TB
	process *Process
	name    string
	answers chan string
}

// Tell gives an order without waiting for the answer.
func (th *Thread) Tell(words ...any) {
	th.t.Helper()
	line := th.name + " " + fmt.Sprintln(words...)
	th.process.mu.Lock()
	defer th.process.mu.Unlock()
	if _, err := io.WriteString(th.process.in, line); err != nil {
		th.t.Fatalf("tell %q: %v", line, err)
	}
}

// Hear waits for the next answer, which has to begin with the word that is
// expected, and returns the others.
func (th *Thread) Hear(want string) []string {
	th.t.Helper()
	words := th.HearAny()
	if words[0] != want {
		th.t.Fatalf("the process said %q, want %q", words, want)
	}
	return words[1:]
}

// HearAny waits for the next answer, whatever it is.
func (th *Thread) HearAny() []string {
	th.t.Helper()
	select {
	case answer := <-th.answers:
		return strings.Split(answer, " ")
	case <-th.process.ended:
		select {
		case answer := <-th.answers: // the last thing it said
			return strings.Split(answer, " ")
		default:
			th.t.Fatal("the process has ended instead of answering")
		}
	case <-time.After(limit):
		th.t.Fatalf("the process did not answer for %v", limit)
	}
	return nil
}

// Answers is for tests that wait for several things at once.
func (th *Thread) Answers() <-chan string { return th.answers }

package child

import (
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"
)

// Threads is a process with several threads, whatever language it is written in, which execute orders
// independently: one waits for a lock while another goes on. Each line to it is the name of a thread and an
// order; it answers with a line that begins with the same name. Its first line is "main ready".
type Threads struct {
	*Process

	mu      sync.Mutex
	answers map[string]chan string // by the name of the thread
}

// threadLimit bounds the wait for an answer, so that a process that hangs does not hang the test.
const threadLimit = 60 * time.Second

// RunThreads starts a process for a test, waits until it is ready, and kills it when the test ends.
func RunThreads(t testing.TB, cmd *exec.Cmd) *Threads {
	t.Helper()
	p := &Threads{answers: make(map[string]chan string)}
	ready := p.thread(t, "main")
	var err error
	if p.Process, err = Start(cmd, func(line string) {
		name, answer, _ := strings.Cut(line, " ")
		p.thread(t, name).answers <- answer
	}); err != nil {
		t.Fatalf("start %s: %v", cmd.Path, err)
	}
	t.Cleanup(p.Kill)
	ready.Expect("ready")
	return p
}

// Thread returns a new thread of the process, for use in the test t.
func (p *Threads) Thread(t testing.TB) *Thread { return p.thread(t, "") }

// thread returns the thread of that name, or a new one.
func (p *Threads) thread(t testing.TB, name string) *Thread {
	p.mu.Lock()
	defer p.mu.Unlock()
	if name == "" {
		name = fmt.Sprint("t", len(p.answers))
	}
	if p.answers[name] == nil {
		p.answers[name] = make(chan string, 100) // more than the orders in flight in any test
	}
	return &Thread{t, p, name, p.answers[name]}
}

// Thread executes its orders one after the other.
type Thread struct {
	t       testing.TB
	process *Threads
	name    string
	answers chan string
}

// Send sends an order without waiting for the answer.
func (th *Thread) Send(words ...any) {
	th.t.Helper()
	line := th.name + " " + strings.TrimSuffix(fmt.Sprintln(words...), "\n")
	if err := th.process.Send(line); err != nil {
		th.t.Fatalf("send %q: %v", line, err)
	}
}

// Expect waits for the next answer, whose first word must be want, and returns its other words.
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
	answer, err := next(th.answers, th.process.ended, threadLimit)
	if err != nil {
		th.t.Fatal(err)
	}
	return strings.Split(answer, " ")
}

// Answers returns the channel of answers, for tests that wait for several events at once.
func (th *Thread) Answers() <-chan string { return th.answers }

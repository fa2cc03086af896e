package faults

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/test/harness/pause"
)

// PuppetEnv makes the test binary a puppet: TestMain calls [Play] if it is set.
const PuppetEnv = "DLOCK_TEST_PUPPET"

// order is what a puppet is told, and answer what it says; one JSON object a line.
type order struct {
	Do   string        `json:"do"`
	Name string        `json:"name,omitempty"`
	TTL  time.Duration `json:"ttl,omitempty"`
	Note string        `json:"note,omitempty"`

	// For workers.
	Worker int           `json:"worker,omitempty"`
	Names  []string      `json:"names,omitempty"`
	Hold   time.Duration `json:"hold,omitempty"` // at most
}

type answer struct {
	Token uint64 `json:"token,omitempty"`
	// Err is empty, or one of the words of classify.
	Err string `json:"err,omitempty"`
	// Believed is when the last look began that found the lease alive, and Done
	// when one did not: see monotonic.
	Believed int64 `json:"believed,omitempty"`
	Done     int64 `json:"done,omitempty"`
}

// mustEndBefore checks that a process that believed in its lease had stopped to
// when another one had the lock.
func (a answer) mustEndBefore(t testing.TB, granted int64) {
	t.Helper()
	if a.Err != "cancelled" {
		t.Errorf("the context of the lost lease says %q", a.Err)
	}
	if a.Believed > granted {
		t.Errorf("the lease was believed in %v after another one was granted", time.Duration(a.Believed-granted))
	}
}

// classify puts an error into a word that survives the pipe.
func classify(err error) string {
	for word, sentinel := range map[string]error{
		"held": dlock.ErrHeld, "not held": dlock.ErrNotHeld, "unreachable": dlock.ErrUnreachable, "cancelled": context.Canceled,
	} {
		if errors.Is(err, sentinel) {
			return word
		}
	}
	if err != nil {
		return err.Error()
	}
	return ""
}

// Play obeys orders from standard input until it ends, and returns the exit status.
func Play(open func(ctx context.Context) (driver.Store, error)) int {
	ctx := context.Background()
	store, err := open(ctx)
	if err != nil {
		fmt.Fprintln(os.Stderr, "puppet:", err)
		return 1
	}
	client := dlock.New(store, nil)
	var lease *dlock.Lease
	looks := func() error { return nil } // at the context that says whether the lock is held
	out := json.NewEncoder(os.Stdout)
	in := json.NewDecoder(os.Stdin)
	for {
		var o order
		if err := in.Decode(&o); err != nil {
			return 0 // the test is over
		}
		var a answer
		switch o.Do {
		case "work": // and nothing else
			if err := work(store, o, in, os.Stdout); err != nil {
				fmt.Fprintln(os.Stderr, "worker:", err)
				return 1
			}
			return 0
		case "lock":
			var err error
			if lease, err = client.Lock(ctx, o.Name, dlock.WithTTL(o.TTL), dlock.WithNote(o.Note)); err != nil {
				a.Err = classify(err)
			} else {
				a.Token, looks = lease.Token(), lease.Context().Err
			}
		case "do": // the same, and never returns
			inside, failed := make(chan func() error), make(chan error)
			go func() {
				failed <- client.Do(ctx, o.Name, func(ctx context.Context) error {
					inside <- ctx.Err
					select {}
				}, dlock.WithTTL(o.TTL))
			}()
			select {
			case looks = <-inside:
			case err := <-failed:
				a.Err = classify(err)
			}
		case "check": // what a careful program does before it writes
			a.Err = classify(looks())
		case "believe": // checks until the lock is lost
			a = believe(looks)
		case "write": // what a program does that has just checked
			a.Token = lease.Token()
		case "unlock":
			a.Err = classify(lease.Unlock(ctx))
		default:
			a.Err = "unknown order " + o.Do
		}
		if err := out.Encode(a); err != nil {
			return 1
		}
	}
}

// believe looks until the lock is not held any more. A time is taken before each
// look: whatever the scheduler does between the two, the look is not earlier.
func believe(looks func() error) (a answer) {
	for {
		now := monotonic()
		if err := looks(); err != nil {
			a.Done, a.Err = monotonic(), classify(err)
			return a
		}
		a.Believed = now
		time.Sleep(time.Millisecond)
	}
}

// puppet is a process of its own.
type puppet struct {
	t   testing.TB
	cmd *exec.Cmd
	in  io.WriteCloser
	out io.Reader

	lines chan []byte // of out; nil until somebody listens
}

func (r Rig) puppet(t testing.TB) *puppet {
	t.Helper()
	cmd := r.Command()
	cmd.Env = append(cmd.Environ(), PuppetEnv+"=1")
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatalf("start a process: %v", err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return &puppet{t: t, cmd: cmd, in: in, out: out}
}

// send gives an order without waiting for the answer.
func (p *puppet) send(o order) {
	p.t.Helper()
	line, err := json.Marshal(o)
	if err != nil {
		p.t.Fatal(err)
	}
	if _, err := p.in.Write(append(line, '\n')); err != nil {
		p.t.Fatalf("order %q: %v", o.Do, err)
	}
}

// hear waits for the next answer.
func (p *puppet) hear() answer {
	p.t.Helper()
	if p.lines == nil {
		p.lines = make(chan []byte, 100) // nobody gives so many orders without listening
		go func() {
			defer close(p.lines)
			for lines := bufio.NewScanner(p.out); lines.Scan(); {
				p.lines <- bytes.Clone(lines.Bytes())
			}
		}()
	}
	line := happens(p.t, p.lines, "an answer of the other process")
	if line == nil {
		p.t.Fatal("the process ended")
	}
	var a answer
	if err := json.Unmarshal(line, &a); err != nil {
		p.t.Fatalf("the process said %q: %v", line, err)
	}
	return a
}

func (p *puppet) do(o order) answer {
	p.t.Helper()
	p.send(o)
	return p.hear()
}

func (p *puppet) mustLock(name string, ttl time.Duration) uint64 {
	p.t.Helper()
	return p.must(order{Do: "lock", Name: name, TTL: ttl}).Token
}

// must gives an order that has to work, again while the store cannot be reached:
// at its start a process may be too slow for it.
func (p *puppet) must(o order) answer {
	p.t.Helper()
	for deadline := time.Now().Add(limit); ; {
		a := p.do(o)
		if a.Err == "" {
			return a
		}
		if a.Err != "unreachable" || time.Now().After(deadline) {
			p.t.Fatalf("%s %q: %s", o.Do, o.Name, a.Err)
		}
	}
}

func (p *puppet) pause() {
	p.t.Helper()
	if err := pause.Process(p.cmd.Process.Pid); err != nil {
		p.t.Fatal(err)
	}
}

func (p *puppet) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatalf("%v: %v", s, err)
	}
}

// kill ends the process without a chance to clean up.
func (p *puppet) kill() {
	p.t.Helper()
	p.signal(syscall.SIGKILL)
	_ = p.cmd.Wait() // that it was killed is no news
}

package faults

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/test/harness/child"
	"github.com/dlock-go/dlock/test/harness/history"
)

// order is a line that the test sends to an agent. answer is the agent's line in
// return. Both are JSON objects.
type order struct {
	Do   string        `json:"do"`
	Name string        `json:"name,omitempty"`
	TTL  time.Duration `json:"ttl,omitempty"`
	Note string        `json:"note,omitempty"`

	// Parameters of a worker.
	Worker int           `json:"worker,omitempty"`
	Names  []string      `json:"names,omitempty"`
	Hold   time.Duration `json:"hold,omitempty"` // at most
}

type answer struct {
	Token uint64 `json:"token,omitempty"`
	// Err is "" or a word from classify.
	Err string `json:"err,omitempty"`
	// LastHeld is the time before the last check that found the lease alive.
	// EndedBy is the time after the check that found it ended. Both are in the
	// time of history.Now.
	LastHeld int64 `json:"lastHeld,omitempty"`
	EndedBy  int64 `json:"endedBy,omitempty"`
}

// mustEndBefore checks that a process stopped trusting its lease before another
// process was granted the lock.
func (a answer) mustEndBefore(t testing.TB, granted int64) {
	t.Helper()
	if a.Err != "cancelled" {
		t.Errorf("the context of the lost lease reports %q", a.Err)
	}
	if a.LastHeld > granted {
		t.Errorf("the lease was trusted %v after the next grant", time.Duration(a.LastHeld-granted))
	}
}

// classify returns a word for an error, which can be sent through a pipe.
func classify(err error) string {
	switch {
	case err == nil:
		return ""
	case errors.Is(err, dlock.ErrHeld):
		return "held"
	case errors.Is(err, dlock.ErrNotHeld): // it may wrap why no renewal succeeded: ErrUnreachable
		return "not held"
	case errors.Is(err, dlock.ErrUnreachable):
		return "unreachable"
	case errors.Is(err, context.Canceled):
		return "cancelled"
	}
	return err.Error()
}

// RunAgent executes orders from standard input until the input ends: it is bundle.Tests.Agent.
func RunAgent(open func(ctx context.Context) (driver.Store, error)) error {
	ctx := context.Background()
	store, err := open(ctx)
	if err != nil {
		return fmt.Errorf("agent: %w", err)
	}
	client := dlock.New(store, nil)
	var lease *dlock.Lease
	check := func() error { return nil } // reports whether the lock is held
	out := json.NewEncoder(os.Stdout)
	in := json.NewDecoder(os.Stdin)
	for {
		var o order
		if err := in.Decode(&o); err != nil {
			return nil // the test has ended
		}
		var a answer
		switch o.Do {
		case "work": // the last order of this process
			return work(store, o, in, os.Stdout)
		case "lock":
			var err error
			if lease, err = client.Lock(ctx, o.Name, dlock.WithTTL(o.TTL), dlock.WithNote(o.Note)); err != nil {
				a.Err = classify(err)
			} else {
				a.Token, check = lease.Token(), lease.Context().Err
			}
		case "do": // like lock, but through a Do that never returns
			inside, failed := make(chan func() error), make(chan error)
			go func() {
				failed <- client.Do(ctx, o.Name, func(ctx context.Context) error {
					inside <- ctx.Err
					select {}
				}, dlock.WithTTL(o.TTL))
			}()
			select {
			case check = <-inside:
			case err := <-failed:
				a.Err = classify(err)
			}
		case "check": // as a careful program does before it writes
			a.Err = classify(check())
		case "poll": // until the lock is lost
			a = pollUntilLost(check)
		case "write": // as a program does right after its check
			a.Token = lease.Token()
		case "unlock":
			a.Err = classify(lease.Unlock(ctx))
		default:
			a.Err = "unknown order " + o.Do
		}
		if err := out.Encode(a); err != nil {
			return err
		}
	}
}

// pollUntilLost checks the lease until it has ended. It reads the clock before
// each check, so that the check is never earlier than the recorded time, whatever
// the scheduler does.
func pollUntilLost(check func() error) (a answer) {
	for {
		now := history.Now()
		if err := check(); err != nil {
			a.EndedBy, a.Err = history.Now(), classify(err)
			return a
		}
		a.LastHeld = now
		time.Sleep(time.Millisecond)
	}
}

// agent is a process that executes the orders of a test.
type agent struct {
	*child.Process
	t testing.TB
}

func (r rig) agent(t testing.TB) agent {
	t.Helper()
	p, err := r.Agent(nil)
	if err != nil {
		t.Fatalf("start a process: %v", err)
	}
	t.Cleanup(p.Kill)
	return agent{p, t}
}

// send sends an order without waiting for the answer.
func (p agent) send(o order) {
	p.t.Helper()
	if err := p.SendJSON(o); err != nil {
		p.t.Fatalf("order %q: %v", o.Do, err)
	}
}

// receive waits for the next answer.
func (p agent) receive() (a answer) {
	p.t.Helper()
	line, err := p.Receive(limit)
	if err == nil {
		err = json.Unmarshal([]byte(line), &a)
	}
	if err != nil {
		p.t.Fatalf("the agent answers %q: %v", line, err)
	}
	return a
}

func (p agent) do(o order) answer {
	p.t.Helper()
	p.send(o)
	return p.receive()
}

func (p agent) mustLock(name string, ttl time.Duration) uint64 {
	p.t.Helper()
	return p.must(order{Do: "lock", Name: name, TTL: ttl}).Token
}

// must sends an order that has to succeed. It repeats the order while the store
// is unreachable: a process that has just started may be too slow for its first
// calls.
func (p agent) must(o order) answer {
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

func (p agent) pause() {
	p.t.Helper()
	if err := p.Pause(); err != nil {
		p.t.Fatal(err)
	}
}

func (p agent) resume() {
	p.t.Helper()
	if err := p.Resume(); err != nil {
		p.t.Fatal(err)
	}
}

// unlockLost unlocks a lease that must be lost already.
func (p agent) unlockLost() {
	p.t.Helper()
	if a := p.do(order{Do: "unlock"}); a.Err != "not held" {
		p.t.Errorf("Unlock of the lost lock returned %q", a.Err)
	}
}

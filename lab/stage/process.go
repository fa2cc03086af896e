package stage

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/dlock-go/dlock/lab/child"
	"github.com/dlock-go/dlock/test/harness/proxy"
)

// ready is the ID of the report that a process is ready.
const ready = -1

// Process is a process of an experiment, with a network connection of its own.
type Process struct {
	Name    string
	Proxies []*proxy.Proxy // between the process and each of Server.Addrs
	Says    string         // what a program said when it was ready

	stage   *Stage
	program bool    // it executes no orders
	network Network // where the process runs; nil for that of the servers
	child   *child.Process

	mu      sync.Mutex
	answers map[int]chan report
	last    int // ID of an order
	read    balances
	granted bool
}

func (p *Process) start(j job) error {
	command, err := p.stage.subject.Command()
	if err != nil {
		return err
	}
	if p.network != nil {
		command = p.network.enter(command...)
	}
	p.answers = map[int]chan report{ready: make(chan report, 1)}
	p.child, err = child.Start(command, j, &p.stage.log, p.receive)
	return err
}

// becomeReady waits until the process is ready.
func (p *Process) becomeReady() error {
	r, err := p.await(p.answers[ready], readyLimit)
	p.Says = r.Text
	return err
}

// receive takes a report of the process.
func (p *Process) receive(r report) {
	switch {
	case r.Visit != nil:
		p.stage.record.visit(p.Name, *r.Visit)
	case r.ID == 0:
		p.stage.record.believed(r.At, p.Name, r.Hold)
	default:
		p.mu.Lock()
		answer := p.answers[r.ID]
		p.mu.Unlock()
		answer <- r
	}
}

// send sends an order, and returns where its answer will be.
func (p *Process) send(o order) (answer chan report) {
	p.mu.Lock()
	p.last++
	o.ID, answer = p.last, make(chan report, 1)
	p.answers[o.ID] = answer
	p.mu.Unlock()
	p.stage.Must(p.child.SendJSON(o))
	return answer
}

func (p *Process) await(answer chan report, limit time.Duration) (report, error) {
	select {
	case r := <-answer:
		return r, nil
	case <-p.child.Ended():
		select {
		case r := <-answer: // its last words
			return r, nil
		default:
			return report{}, fmt.Errorf("process %s has ended", p.Name)
		}
	case <-time.After(limit):
		return report{}, fmt.Errorf("process %s did not answer within %v", p.Name, limit)
	case <-p.stage.ctx.Done():
		return report{}, p.stage.ctx.Err()
	}
}

// Lock acquires the lock. If the process does not get it within the patience of the
// experiment, the verdict is [Stuck].
func (p *Process) Lock() bool {
	ok := p.TryFor(p.stage.Patience)
	if !ok {
		p.stage.Stuck(p.Name + " does not get the lock")
	}
	return ok
}

// TryFor reports whether the process gets the lock within limit.
func (p *Process) TryFor(limit time.Duration) bool { return p.StartLock(limit)() }

// StartLock begins to wait for the lock, or for several names at once. wait reports
// whether the process got it within limit.
func (p *Process) StartLock(limit time.Duration, names ...string) (wait func() bool) {
	answer := p.send(order{Do: "lock", Limit: limit, Names: names})
	result := make(chan bool, 1)
	go func() {
		r, err := p.await(answer, limit+answerLimit)
		switch {
		case err != nil:
			result <- false // killed, paused, or the end of the experiment
		case r.Err != "":
			p.stage.record.add(r.At, Event{Process: p.Name, Kind: Failed, Text: r.Err})
			result <- false
		default:
			p.stage.record.begin(r.At, p.Name, r.Hold, r.Token)
			p.mu.Lock()
			p.granted = true
			p.mu.Unlock()
			result <- true
		}
	}()
	return sync.OnceValue(func() bool { return <-result })
}

// Holds reports whether the process got the lock, whether or not it has lost it since.
func (p *Process) Holds() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.granted
}

// Read reads the account.
func (p *Process) Read() {
	p.read = p.stage.Account.read()
	p.stage.record.add(Now(), Event{Process: p.Name, Kind: Read})
}

// Check reports whether the process believes to have the lock.
func (p *Process) Check() bool { return p.do(order{Do: "check"}).Believes }

// Token returns the token of the process's lock, or zero.
func (p *Process) Token() uint64 { return p.do(order{Do: "check"}).Token }

// Write adds one to what the process has read, if it believes to have the lock.
func (p *Process) Write() { p.write(false) }

// WriteChecked is the write of a process that has checked its lock before, and may
// have been paused since.
func (p *Process) WriteChecked() { p.write(true) }

func (p *Process) write(checked bool) {
	r := p.do(order{Do: "write", Checked: checked})
	if !r.Believes {
		p.stage.record.add(r.At, Event{Process: p.Name, Kind: Withheld})
		return
	}
	if !checked {
		p.stage.record.believed(r.At, p.Name, r.Hold)
	}
	accepted, stale := p.stage.Account.write(p.read, r.Token)
	if row := p.stage.Row; row != nil {
		var err error
		accepted, err = row(r.Token)
		p.stage.Must(err)
		if accepted {
			p.stage.record.fell(Now())
		}
	}
	p.stage.record.add(Now(), Event{Process: p.Name, Kind: Wrote, Token: r.Token, Refused: !accepted, Stale: stale})
}

// Deposit reads and writes.
func (p *Process) Deposit() {
	p.Read()
	p.Write()
}

// Finish ends the work of a process that keeps the lock a little longer: it does not
// write any more.
func (p *Process) Finish() { p.do(order{Do: "finish"}) }

// Unlock releases the lock, and records the error if it has one.
func (p *Process) Unlock() { p.StartUnlock()() }

// StartUnlock begins to release the lock; wait returns when that has ended.
func (p *Process) StartUnlock() (wait func()) {
	answer := p.send(order{Do: "unlock", Limit: answerLimit})
	return func() {
		r, err := p.await(answer, 2*answerLimit)
		p.stage.Must(err)
		p.mu.Lock()
		p.granted = false
		p.mu.Unlock()
		e := Event{Process: p.Name, Kind: Unlocked}
		if r.Err != "" {
			e.Kind, e.Text = Failed, "unlock: "+r.Err
		}
		p.stage.record.add(r.At, e)
	}
}

// do executes an order that does not wait for a server.
func (p *Process) do(o order) report {
	answer := p.send(o)
	r, err := p.await(answer, answerLimit)
	p.stage.Must(err)
	if r.Err != "" {
		p.stage.Must(fmt.Errorf("process %s: %s: %s", p.Name, o.Do, r.Err))
	}
	return r
}

// Pause stops the process, as a long garbage collection does.
func (p *Process) Pause() {
	p.stage.Must(p.child.Pause())
	p.stage.Harm(p.Name + " is paused")
	p.stage.record.paused(p.Name)
}

// Resume lets the process go on, and returns how long it was paused.
func (p *Process) Resume() time.Duration {
	length := p.stage.record.resumed(p.Name)
	p.stage.Must(p.child.Resume())
	p.stage.Harm(p.Name + " goes on")
	return length
}

// Kill ends the process without a chance to clean up.
func (p *Process) Kill() {
	p.child.Kill()
	p.stage.Harm(p.Name + " is killed")
}

// stopLimit is how long a program may take to end after the end of its input.
const stopLimit = 5 * time.Second

// Begin lets a program begin, and Stop lets it end by itself: it has reported all its visits then.
func (p *Process) Begin() error { return p.child.SendJSON(order{Do: "begin"}) }
func (p *Process) Stop() error  { return p.child.Stop(stopLimit) }

// Await returns when a program has ended by itself.
func (p *Process) Await(ctx context.Context) error {
	select {
	case <-p.child.Ended():
		return p.child.Stop(stopLimit)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// end ends the process after the experiment.
func (p *Process) end() {
	if p.program {
		_ = p.Stop() // so that it releases its locks; if it does not end, it is killed
		return
	}
	p.child.Kill()
}

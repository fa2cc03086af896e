package drivertest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// probe is what a clause works with: connections that are closed and locks
// that are released when the clause ends, and ways to wait and to fail.
type probe struct {
	*terms
	ctx    context.Context
	clause string

	mu   sync.Mutex
	undo []func(context.Context)
}

// failure ends a check that failed, from any depth of calls.
type failure string

// tooSlow ends a check that cannot tell: the machine was so busy that a TTL passed before
// the store was asked.
type tooSlow struct{}

// failf ends the clause: the store broke it.
func (p *probe) failf(format string, args ...any) {
	panic(failure(fmt.Sprintf(format, args...)))
}

// run returns why check failed, or nothing. A check that was too slow to tell
// starts again with more time.
func (p *probe) run(check func(*probe)) string {
	for range 3 {
		detail, slow := p.once(check)
		if !slow {
			return detail
		}
		p.terms = p.slower()
		p.clause += "+" // names of its own
	}
	return fmt.Sprintf("cannot tell: calls take longer than a TTL of %v; raise Config.TTL or lower Config.Parallel", p.ttl)
}

func (p *probe) once(check func(*probe)) (detail string, slow bool) {
	defer p.leave()
	defer func() {
		switch r := recover().(type) {
		case nil:
		case failure:
			detail = string(r)
		case tooSlow:
			slow = true
		default:
			panic(r)
		}
	}()
	check(p)
	return "", false
}

// before runs f, and ignores a failure of f after the deadline. Every check that relies on
// a short TTL that has not passed yet belongs into such an f.
func (p *probe) before(deadline time.Time, f func()) {
	defer func() {
		r := recover()
		if _, failed := r.(failure); failed && !time.Now().Before(deadline) {
			r = tooSlow{}
		}
		if r != nil {
			panic(r)
		}
	}()
	f()
}

// leave undoes what the clause did, the last thing first.
func (p *probe) leave() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(p.ctx), p.slack+10*time.Second)
	defer cancel()
	p.mu.Lock()
	undo := p.undo
	p.undo = nil
	p.mu.Unlock()
	for _, f := range slices.Backward(undo) {
		f(ctx)
	}
}

func (p *probe) atEnd(f func(context.Context)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.undo = append(p.undo, f)
}

// name returns a lock name that no other clause uses.
func (p *probe) name(label string) string { return p.prefix + p.clause + "/" + label }

// holder describes a contender, recognisably.
func (p *probe) holder(note string) driver.Holder {
	return driver.Holder{Host: "kit.example", PID: 4711, Program: "drivertest " + p.runID, Note: note}
}

// wait lets time pass.
func (p *probe) wait(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-p.ctx.Done():
		p.failf("not finished within %v", p.limit)
	}
}

// waitUntil lets time pass until then.
func (p *probe) waitUntil(then time.Time) { p.wait(time.Until(then)) }

// eventually polls until ok returns true, and reports whether it did within limit.
func (p *probe) eventually(limit time.Duration, ok func() bool) bool {
	for deadline := time.Now().Add(limit); ; {
		late := time.Now().After(deadline) // decided before the call: the last call of ok is after the limit
		if ok() {
			return true
		}
		if late {
			return false
		}
		p.wait(p.poll)
	}
}

// together runs f n times at once and fails if one of them does.
func (p *probe) together(n int, f func(i int)) {
	failures := make(chan any, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			defer func() {
				switch r := recover().(type) {
				case nil:
				case failure, tooSlow:
					failures <- r
				default:
					panic(r)
				}
			}()
			f(i)
		})
	}
	all.Wait()
	select {
	case r := <-failures:
		panic(r)
	default:
	}
}

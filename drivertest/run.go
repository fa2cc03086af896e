package drivertest

import (
	"context"
	"errors"
	"fmt"
	"runtime/pprof"
	"testing"
	"time"
)

// Run checks a store, with a parallel subtest for each clause.
func Run(t *testing.T, cfg Config) {
	t.Helper()
	ctx := context.Background()
	terms, err := labelled(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	// Cleanup runs when all subtests have ended, and a failure in it is still
	// one of t.
	t.Cleanup(func() {
		if v := terms.perform(ctx, &nothingLeft); v != nil {
			t.Error(v)
		}
	})
	for i := range clauses {
		c := &clauses[i]
		if what := c.missing(terms); what != "" {
			t.Logf("%s does not apply: no %s", c.id, what)
			continue
		}
		t.Run(c.id, func(t *testing.T) {
			// Started before t.Parallel, so that the number of processors
			// does not limit how many clauses wait for a TTL together.
			outcome := terms.start(ctx, c)
			t.Parallel()
			if v := <-outcome; v != nil {
				t.Error(v)
			}
		})
	}
}

// Check does what Run does without a testing.T. It returns nil if the store
// keeps the contract. Otherwise the error is an errors.Join of one [*Violation]
// for each broken clause, in the order of [Clauses]; if the store could not be
// opened at all it is that error. A context that ends makes the clauses fail
// that are still running.
func Check(ctx context.Context, cfg Config) error {
	terms, err := labelled(ctx, cfg)
	if err != nil {
		return err
	}
	return terms.checkAll(ctx)
}

func (t *terms) checkAll(ctx context.Context) error {
	var outcomes []<-chan *Violation
	for i := range clauses {
		if c := &clauses[i]; c.missing(t) == "" {
			outcomes = append(outcomes, t.start(ctx, c))
		}
	}
	var broken []error
	for _, outcome := range outcomes {
		if v := <-outcome; v != nil {
			broken = append(broken, v)
		}
	}
	if v := t.perform(ctx, &nothingLeft); v != nil {
		broken = append(broken, v)
	}
	return errors.Join(broken...)
}

// start checks one clause when a seat is free.
func (t *terms) start(ctx context.Context, c *clause) <-chan *Violation {
	outcome := make(chan *Violation, 1)
	go func() {
		t.seats <- struct{}{}
		defer func() { <-t.seats }()
		outcome <- t.perform(ctx, c)
	}()
	return outcome
}

// returnLimit is how long a call may go on when its context is done.
const returnLimit = 10 * time.Second

// perform checks one clause. A check that was too slow to tell starts again with twice the
// TTL.
func (t *terms) perform(ctx context.Context, c *clause) *Violation {
	const tries = 6 // the last one has 32 times the TTL
	clauseID := c.id
	for try := 1; ; try++ {
		detail, slow := t.attempt(ctx, clauseID, c)
		if detail == "" {
			return nil
		}
		if slow && try == tries {
			detail += fmt.Sprintf(" (in each of %d tries, the last with a TTL of %v: if the store is sound, "+
				"the machine is too slow; raise Config.TTL or lower Config.Parallel)", tries, t.ttl)
		}
		if !slow || try == tries {
			return &Violation{Clause: c.id, Explanation: c.demand, Detail: detail}
		}
		t = t.slower()
		clauseID += "+" // names of its own
	}
}

// attempt runs a check once. It returns even if the store never does.
func (t *terms) attempt(ctx context.Context, clauseID string, c *clause) (detail string, slow bool) {
	ctx, cancel := context.WithTimeout(ctx, t.limit)
	defer cancel()
	p := &probe{terms: t, clause: clauseID}
	done := make(chan struct{})
	go pprof.Do(ctx, t.label(), func(ctx context.Context) {
		defer close(done)
		p.ctx = ctx
		p.detail, p.slow = p.run(c)
	})
	select {
	case <-done:
		return p.detail, p.slow
	case <-time.After(t.limit + returnLimit):
		return fmt.Sprintf("a call did not return within %v of the end of its context", returnLimit), false
	}
}

// Violation is a broken promise.
type Violation struct {
	Clause      string // which one: the name of a [Clause]
	Explanation string // what the contract demands
	Detail      string // what the store did instead
}

func (v *Violation) Error() string {
	return fmt.Sprintf("%s: %s\n\tthe contract: %s", v.Clause, v.Detail, v.Explanation)
}

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
	s, err := labelled(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	// Cleanup runs when all subtests have ended, and a failure in it is still
	// one of t.
	t.Cleanup(func() {
		if v := s.perform(ctx, &nothingLeft); v != nil {
			t.Error(v)
		}
	})
	for i := range clauses {
		c := &clauses[i]
		if what := c.missing(s); what != "" {
			t.Logf("%s does not apply: no %s", c.id, what)
			continue
		}
		t.Run(c.id, func(t *testing.T) {
			// Started before t.Parallel, so that the number of processors
			// does not limit how many clauses wait for a TTL together.
			outcome := s.start(ctx, c)
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
	s, err := labelled(ctx, cfg)
	if err != nil {
		return err
	}
	return s.checkAll(ctx)
}

func (s *setup) checkAll(ctx context.Context) error {
	var outcomes []<-chan *Violation
	for i := range clauses {
		if c := &clauses[i]; c.missing(s) == "" {
			outcomes = append(outcomes, s.start(ctx, c))
		}
	}
	var broken []error
	for _, outcome := range outcomes {
		if v := <-outcome; v != nil {
			broken = append(broken, v)
		}
	}
	if v := s.perform(ctx, &nothingLeft); v != nil {
		broken = append(broken, v)
	}
	return errors.Join(broken...)
}

// start checks one clause when fewer than Config.Parallel are being checked.
func (s *setup) start(ctx context.Context, c *clause) <-chan *Violation {
	outcome := make(chan *Violation, 1)
	go func() {
		s.running <- struct{}{}
		defer func() { <-s.running }()
		outcome <- s.perform(ctx, c)
	}()
	return outcome
}

// returnLimit is how long a call may go on when its context is done.
const returnLimit = 10 * time.Second

// perform checks one clause. A check that was too slow to tell starts again with twice the
// TTL.
func (s *setup) perform(ctx context.Context, c *clause) *Violation {
	const tries = 6 // the last one has 32 times the TTL
	clauseID := c.id
	for try := 1; ; try++ {
		failed := s.attempt(ctx, clauseID, c)
		if failed == nil {
			return nil
		}
		if failed.slow && try == tries {
			failed.detail += fmt.Sprintf(" (in each of %d tries, the last with a TTL of %v: if the store is sound, "+
				"the machine is too slow; raise Config.TTL or lower Config.Parallel)", tries, s.ttl)
		}
		if !failed.slow || try == tries {
			return &Violation{Clause: c.id, Explanation: c.demand, Detail: failed.detail}
		}
		slower := *s
		slower.setTTL(2 * s.ttl)
		s = &slower
		clauseID += "+" // names of its own
	}
}

// attempt runs a check once, and cleans up. It returns even if the store never does.
func (s *setup) attempt(ctx context.Context, clauseID string, c *clause) *failure {
	ctx, cancel := context.WithTimeout(ctx, s.limit)
	defer cancel()
	ended := make(chan *failure, 1)
	go pprof.Do(ctx, pprof.Labels(labelKey, s.runID), func(ctx context.Context) {
		defer close(ended)
		p := &probe{setup: s, clause: clauseID, ctx: ctx}
		ended <- p.run(c)
	})
	select {
	case failed := <-ended:
		return failed
	case <-time.After(s.limit + s.cleanup + returnLimit):
		return &failure{detail: fmt.Sprintf("a call did not return within %v of the end of its context", returnLimit)}
	}
}

// Violation is a broken promise.
type Violation struct {
	Clause      string // which one: the ID of a [Clause]
	Explanation string // what the contract demands
	Detail      string // what the store did instead
}

func (v *Violation) Error() string {
	return fmt.Sprintf("%s: %s\n\tthe contract: %s", v.Clause, v.Detail, v.Explanation)
}

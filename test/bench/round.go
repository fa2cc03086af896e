package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"time"

	"github.com/dlock-go/dlock/test/bench/subjects"
)

// kind is a kind of case, the same for every store. Each has a file; see kinds.
type kind struct {
	name   string
	rounds int

	// clientOnly restricts the case to dlock.
	clientOnly bool

	// run measures a subject in one round.
	run func(ctx context.Context, r round) (figures, error)

	// interleaved, in place of run, measures all subjects of a round at once.
	interleaved func(ctx context.Context, rounds []round) ([]figures, error)
}

// kinds are in the order of the measurements.
var kinds = []kind{solo, many, handover, crowd, waiters, held}

// round is one measurement of one subject.
type round struct {
	store   subjects.Store
	subject subjects.Subject
	servers subjects.Served // nil if the store has none
	dir     string          // empty, for state outside the process
	window  time.Duration   // how long to measure
	budget  time.Duration   // the windows of all rounds together
}

// stuckLimit ends a round without progress.
const stuckLimit = 2 * time.Minute

// run measures all subjects one after the other. Each round starts with another
// subject, so that no subject always follows the same one.
func (j job) run(ctx context.Context, budget time.Duration) (results []result, err error) {
	present := j.present(ctx)
	var servers subjects.Served
	if j.store.Serve != nil {
		if servers, err = j.store.Serve(ctx); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, servers.Stop()) }()
	}
	measured := make([][]figures, len(present))
	for n := range j.kind.rounds {
		order := roundOrder(n, len(present))
		figures, err := j.measure(ctx, order, present, servers, budget)
		if err != nil {
			return nil, err
		}
		for i, at := range order {
			measured[at] = append(measured[at], figures[i])
		}
	}
	for i, s := range present {
		results = append(results, result{j.name(), s.Name, median(measured[i]), measured[i]})
	}
	return results, nil
}

// subjects returns the subjects of the case.
func (j job) subjects() []subjects.Subject {
	return slices.DeleteFunc(slices.Clone(j.store.Subjects), func(s subjects.Subject) bool {
		return j.kind.clientOnly && s.Name != "dlock" || s.Cases != nil && !slices.Contains(s.Cases, j.kind.name)
	})
}

// present returns the subjects that can run here. It prints why the others
// cannot.
func (j job) present(ctx context.Context) []subjects.Subject {
	return slices.DeleteFunc(j.subjects(), func(s subjects.Subject) bool {
		if s.Foreign == nil {
			return false
		}
		_, err := s.Foreign(ctx, "")
		if err != nil {
			fmt.Printf("%s: skipped: %s: %v\n", j.name(), s.Name, err)
		}
		return err != nil
	})
}

// roundOrder returns the order of the subjects in the n-th round.
func roundOrder(n, subjects int) []int {
	order := make([]int, subjects)
	for i := range order {
		order[i] = (i + n) % subjects
	}
	if (n/subjects)%2 == 1 { // every other cycle is reversed
		slices.Reverse(order)
	}
	return order
}

// measure measures one round of all subjects in the given order.
func (j job) measure(ctx context.Context, order []int, present []subjects.Subject, servers subjects.Served, budget time.Duration) (all []figures, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, time.Duration(len(order))*(budget+stuckLimit), errors.New("the round is stuck"))
	defer cancel()
	var rounds []round
	defer func() {
		for _, r := range rounds {
			err = errors.Join(err, os.RemoveAll(r.dir))
		}
	}()
	for _, at := range order {
		r, err := j.round(present[at], servers, budget)
		if err != nil {
			return nil, r.failed(err)
		}
		rounds = append(rounds, r)
	}
	for _, r := range rounds {
		if err := r.prepare(ctx); err != nil {
			return nil, r.failed(err)
		}
		if j.kind.interleaved != nil {
			continue
		}
		f, err := j.kind.run(ctx, r)
		if err != nil {
			return nil, r.failed(err)
		}
		all = append(all, f)
	}
	if j.kind.interleaved != nil {
		return j.kind.interleaved(ctx, rounds)
	}
	return all, nil
}

func (j job) round(s subjects.Subject, servers subjects.Served, budget time.Duration) (round, error) {
	dir, err := os.MkdirTemp("", "dlock-bench-")
	return round{
		store: j.store, subject: s, servers: servers, dir: dir,
		window: budget / time.Duration(j.kind.rounds), budget: budget,
	}, err
}

func (r round) failed(err error) error { return fmt.Errorf("%s: %w", r.subject.Name, err) }

// prepare empties the servers, and checks that the subject excludes.
func (r round) prepare(ctx context.Context) error {
	if r.servers != nil {
		if err := r.servers.Prepare(ctx, r.dir); err != nil {
			return err
		}
	}
	if r.subject.Open != nil {
		if err := excludes(ctx, r.subject, r.dir); err != nil {
			return err
		}
	}
	runtime.GC() // so that no subject pays for the garbage of its predecessor
	return nil
}

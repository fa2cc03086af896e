package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/test/bench/subjects"
)

// kind is a kind of case, the same for every store. Each has a file; see kinds.
type kind struct {
	name   string
	rounds int

	// clientOnly restricts the case to dlock.
	clientOnly bool

	// mode restricts the case to subjects that offer it.
	mode driver.Mode

	// commands restricts the case to subjects that are commands.
	commands bool

	// points, of a curve of growth, are the values of round.at.
	points []int

	// run measures a subject in one round.
	run func(ctx context.Context, r round) (figures, error)

	// interleaved, in place of run, measures all subjects of a round at once.
	interleaved func(ctx context.Context, rounds []round) ([]figures, error)
}

// kinds are in the order of the measurements.
var kinds = []kind{solo, many, handover, crowd, readers, permits, waiters, held, execute}

// round is one measurement of one subject.
type round struct {
	store   subjects.Store
	subject subjects.Subject
	servers subjects.Served // nil if the store has none
	dir     string          // empty, for state outside the process
	window  time.Duration   // how long to measure
	budget  time.Duration   // the windows of all rounds together
	at      int             // the point of a curve of growth, otherwise 0
}

// stuckLimit ends a round without progress.
const stuckLimit = 2 * time.Minute

// run measures all subjects, at every point of a curve of growth. A subject that
// fails is left out from then on, and the others are measured without it.
func (j job) run(ctx context.Context, servers subjects.Served, budget time.Duration) (results []result, err error) {
	points := j.kind.points
	if points == nil {
		points = []int{0}
	}
	present := j.present(ctx)
	var failures []error
	for _, at := range points {
		if at > 0 {
			progress("%s: %d", j.name(), at)
		}
		measured, failed, err := j.runAt(ctx, at, present, servers, budget)
		for _, f := range failed {
			failures = append(failures, f)
			present = slices.DeleteFunc(present, func(s subjects.Subject) bool { return s.Name == f.subject })
			measured = append(measured, result{kase: j.name(), subject: f.subject, failure: f.err.Error()})
		}
		results = append(results, measured...)
		if err != nil {
			return results, errors.Join(append(failures, err)...)
		}
	}
	return results, errors.Join(failures...)
}

// runAt measures the subjects one after the other. Each round starts with another
// subject, so that no subject always follows the same one. A round in which a
// subject fails is repeated without it.
func (j job) runAt(ctx context.Context, at int, present []subjects.Subject, servers subjects.Served, budget time.Duration) (results []result, failed []*subjectError, err error) {
	present = slices.Clone(present)
	rounds := make(map[string][]figures)
	for n := 0; n < j.kind.rounds && len(present) > 0; {
		order := roundOrder(n, len(present))
		measured, err := j.measure(ctx, at, order, present, servers, budget)
		if failure, ok := errors.AsType[*subjectError](err); ok && ctx.Err() == nil {
			failed = append(failed, failure)
			present = slices.DeleteFunc(present, func(s subjects.Subject) bool { return s.Name == failure.subject })
			continue
		}
		if err != nil {
			return nil, failed, err
		}
		for i, index := range order {
			name := present[index].Name
			rounds[name] = append(rounds[name], measured[i])
		}
		n++
	}
	for _, s := range present {
		r := result{kase: j.name(), subject: s.Name, figures: median(rounds[s.Name]), rounds: rounds[s.Name]}
		if at > 0 {
			r.figures[point] = float64(at)
		}
		results = append(results, r)
	}
	compareRates(results)
	return results, failed, nil
}

// subjects returns the subjects of the case.
func (j job) subjects() []subjects.Subject {
	return slices.DeleteFunc(slices.Clone(j.store.Subjects), func(s subjects.Subject) bool {
		return (s.Command != nil) != j.kind.commands ||
			j.kind.clientOnly && s.Name != "dlock" || !s.Offers(j.kind.mode) ||
			j.kind.points != nil && !onCurve(s) ||
			s.Cases != nil && !slices.Contains(s.Cases, j.kind.name)
	})
}

// present returns the subjects that can run here. It prints why the others
// cannot.
func (j job) present(ctx context.Context) []subjects.Subject {
	return slices.DeleteFunc(j.subjects(), func(s subjects.Subject) bool {
		err := s.Absent(ctx)
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
func (j job) measure(ctx context.Context, at int, order []int, present []subjects.Subject, servers subjects.Served, budget time.Duration) (all []figures, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, time.Duration(len(order))*(budget+stuckLimit), errors.New("the round is stuck"))
	defer cancel()
	var rounds []round
	defer func() {
		for _, r := range rounds {
			err = errors.Join(err, os.RemoveAll(r.dir))
		}
	}()
	for _, index := range order {
		r, err := j.round(at, present[index], servers, budget)
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

func (j job) round(at int, s subjects.Subject, servers subjects.Served, budget time.Duration) (round, error) {
	if at > 0 {
		budget /= pointShare
	}
	dir, err := os.MkdirTemp("", "dlock-bench-")
	return round{
		store: j.store, subject: s, servers: servers, dir: dir, at: at,
		window: budget / time.Duration(j.kind.rounds), budget: budget,
	}, err
}

// subjectError is the failure of one subject.
type subjectError struct {
	subject string
	err     error
}

func (e *subjectError) Error() string { return e.subject + ": " + e.err.Error() }
func (e *subjectError) Unwrap() error { return e.err }

func (r round) failed(err error) error { return &subjectError{r.subject.Name, err} }

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

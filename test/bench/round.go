package main

import (
	"context"
	"errors"
	"os"
	"runtime"
	"slices"
	"time"

	"github.com/dlock-go/dlock/test/bench/subjects"
)

// round is one measurement of one subject.
type round struct {
	store   subjects.Store
	subject subjects.Subject
	servers *subjects.Servers // nil if the store has none
	place   subjects.Place
	window  time.Duration // how long to measure
	budget  time.Duration // the windows of all rounds together
	at      int           // the point of a curve of growth, otherwise 0
}

const (
	// A point of a curve takes the pointShare-th part of the time of a case.
	pointShare = 3

	// stuckLimit ends a round without progress.
	stuckLimit = 2 * time.Minute
)

// run measures all subjects, at every point of a curve of growth. A subject that
// fails is left out from then on, and the others are measured without it.
func (j job) run(ctx context.Context, servers *subjects.Servers, budget time.Duration) (results collection, err error) {
	points := j.kind.points
	if points == nil {
		points = []int{0}
	} else {
		budget /= pointShare
	}
	present := j.present()
	var failures []error
	for _, at := range points {
		if at > 0 {
			progress("%s: %d", j.name(), at)
		}
		for {
			measured, err := j.runAt(ctx, round{store: j.store, servers: servers, budget: budget, at: at}, present)
			results = append(results, measured...)
			if err == nil {
				break
			}
			failures = append(failures, err)
			failed, ok := errors.AsType[*subjectError](err)
			if !ok || ctx.Err() != nil {
				return results, errors.Join(failures...)
			}
			present = without(present, failed.subject)
			results = append(results, result{kase: j.name(), subject: failed.subject, failure: failed.err.Error()})
		}
	}
	return results, errors.Join(failures...)
}

// runAt measures the subjects one after the other. Each round starts with another
// subject, so that no subject always follows the same one.
func (j job) runAt(ctx context.Context, r round, present []subjects.Subject) (results collection, err error) {
	rounds := make(map[string][]figures)
	for n := 0; n < j.kind.rounds && len(present) > 0; n++ {
		ordered := inOrder(n, present)
		measured, err := j.measure(ctx, r, ordered)
		if err != nil {
			return nil, err
		}
		for i, s := range ordered {
			rounds[s.Name] = append(rounds[s.Name], measured[i])
		}
	}
	for _, s := range present {
		found := result{kase: j.name(), subject: s.Name, figures: median(rounds[s.Name]), rounds: rounds[s.Name]}
		if r.at > 0 {
			found.figures[point] = float64(r.at)
		}
		results = append(results, found)
	}
	results.compareRates()
	return results, nil
}

func without(all []subjects.Subject, name string) []subjects.Subject {
	return slices.DeleteFunc(slices.Clone(all), func(s subjects.Subject) bool { return s.Name == name })
}

// inOrder returns the subjects in the order of the n-th round.
func inOrder(n int, all []subjects.Subject) []subjects.Subject {
	first := n % len(all)
	order := slices.Concat(all[first:], all[:first])
	if (n/len(all))%2 == 1 { // every other cycle is reversed
		slices.Reverse(order)
	}
	return order
}

// measure measures one round of all subjects in the given order.
func (j job) measure(ctx context.Context, r round, ordered []subjects.Subject) (all []figures, err error) {
	limit := time.Duration(len(ordered)) * (r.budget + stuckLimit)
	ctx, cancel := context.WithTimeoutCause(ctx, limit, errors.New("the round is stuck"))
	defer cancel()
	var rounds []round
	defer func() {
		for _, r := range rounds {
			err = errors.Join(err, os.RemoveAll(r.place.Dir))
		}
	}()
	r.window = r.budget / time.Duration(j.kind.rounds)
	for _, s := range ordered {
		r.subject = s
		dir, err := os.MkdirTemp("", "dlock-bench-")
		if err != nil {
			return nil, r.failed(err)
		}
		r.place = subjects.NewPlace(dir, r.servers)
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
		if err := r.servers.Empty(ctx); err != nil {
			return err
		}
	}
	if r.subject.Open != nil && !r.subject.Command {
		if err := r.excludes(ctx); err != nil {
			return err
		}
	}
	runtime.GC() // so that no subject pays for the garbage of its predecessor
	return nil
}

// sleep blocks until the window or the context ends.
func sleep(ctx context.Context, window time.Duration) error {
	select {
	case <-time.After(window):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

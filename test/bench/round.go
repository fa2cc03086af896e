package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"time"
)

// kind is a sort of case, the same for every store. One file each; see kinds.
type kind struct {
	name   string
	rounds int

	// clientOnly says that only dlock can do it.
	clientOnly bool

	// run measures a subject in one round.
	run func(ctx context.Context, r round) (figures, error)

	// abreast, in place of run, measures all subjects of a round at once.
	abreast func(ctx context.Context, rounds []round) ([]figures, error)
}

// kinds, in the order in which they are measured.
var kinds = []kind{solo, many, handover, crowd, waiters, held}

// round is one turn of one subject.
type round struct {
	store   store
	subject subject
	servers served        // nil if there are none
	dir     string        // fresh, for state outside the process
	window  time.Duration // how long to measure
	budget  time.Duration // the windows of all rounds together
}

// stuckLimit ends a round in which nothing moves any more.
const stuckLimit = 2 * time.Minute

// run measures all subjects in turn, starting with another one in each round,
// so that none always runs on the machine that its predecessor warmed or wore.
func (j job) run(ctx context.Context, budget time.Duration) (results []result, err error) {
	subjects := j.present(ctx)
	var servers served
	if j.store.serve != nil {
		if servers, err = j.store.serve(ctx); err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, servers.stop()) }()
	}
	measured := make([][]figures, len(subjects))
	for n := range j.kind.rounds {
		order := turns(n, len(subjects))
		figures, err := j.measure(ctx, order, subjects, servers, budget)
		if err != nil {
			return nil, err
		}
		for i, at := range order {
			measured[at] = append(measured[at], figures[i])
		}
	}
	for i, s := range subjects {
		results = append(results, result{j.name(), s.name, median(measured[i]), measured[i]})
	}
	return results, nil
}

// subjects are those that the case is for.
func (j job) subjects() []subject {
	return slices.DeleteFunc(slices.Clone(j.store.subjects), func(s subject) bool {
		return j.kind.clientOnly && s.name != "dlock" || s.cases != nil && !slices.Contains(s.cases, j.kind.name)
	})
}

// present are the subjects that can be measured here. It says which are not, and why.
func (j job) present(ctx context.Context) []subject {
	return slices.DeleteFunc(j.subjects(), func(s subject) bool {
		if s.foreign == nil {
			return false
		}
		_, err := s.foreign(ctx, "")
		if err != nil {
			fmt.Printf("%s: skipped: %s: %v\n", j.name(), s.name, err)
		}
		return err != nil
	})
}

// turns is the order in which so many subjects have their turns in the n-th round.
func turns(n, subjects int) []int {
	order := make([]int, subjects)
	for i := range order {
		order[i] = (i + n) % subjects
	}
	if (n/subjects)%2 == 1 { // and sometimes backwards
		slices.Reverse(order)
	}
	return order
}

// measure is one round of all subjects, in that order.
func (j job) measure(ctx context.Context, order []int, subjects []subject, servers served, budget time.Duration) (all []figures, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, time.Duration(len(order))*(budget+stuckLimit), errors.New("the round is stuck"))
	defer cancel()
	var rounds []round
	defer func() {
		for _, r := range rounds {
			err = errors.Join(err, os.RemoveAll(r.dir))
		}
	}()
	for _, at := range order {
		r, err := j.round(subjects[at], servers, budget)
		if err != nil {
			return nil, r.failed(err)
		}
		rounds = append(rounds, r)
	}
	for _, r := range rounds {
		if err := r.prepare(ctx); err != nil {
			return nil, r.failed(err)
		}
		if j.kind.abreast != nil {
			continue
		}
		f, err := j.kind.run(ctx, r)
		if err != nil {
			return nil, r.failed(err)
		}
		all = append(all, f)
	}
	if j.kind.abreast != nil {
		return j.kind.abreast(ctx, rounds)
	}
	return all, nil
}

func (j job) round(s subject, servers served, budget time.Duration) (round, error) {
	dir, err := os.MkdirTemp("", "dlock-bench-")
	return round{
		store: j.store, subject: s, servers: servers, dir: dir,
		window: budget / time.Duration(j.kind.rounds), budget: budget,
	}, err
}

func (r round) failed(err error) error { return fmt.Errorf("%s: %w", r.subject.name, err) }

// prepare empties the servers, and checks that the subject locks.
func (r round) prepare(ctx context.Context) error {
	if r.servers != nil {
		if err := r.servers.prepare(ctx, r.dir); err != nil {
			return err
		}
	}
	if r.subject.open != nil {
		if err := excludes(ctx, r.subject, r.dir); err != nil {
			return err
		}
	}
	runtime.GC() // nobody pays for the garbage of the one before
	return nil
}

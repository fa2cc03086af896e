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
		for i := range subjects {
			at := (i + n) % len(subjects)
			if (n/len(subjects))%2 == 1 { // and sometimes backwards
				at = len(subjects) - 1 - at
			}
			f, err := j.round(ctx, subjects[at], servers, budget)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", subjects[at].name, err)
			}
			measured[at] = append(measured[at], f)
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

func (j job) round(ctx context.Context, s subject, servers served, budget time.Duration) (f figures, err error) {
	dir, err := os.MkdirTemp("", "dlock-bench-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	ctx, cancel := context.WithTimeoutCause(ctx, budget+stuckLimit, errors.New("the round is stuck"))
	defer cancel()
	if servers != nil {
		if err := servers.prepare(ctx, dir); err != nil {
			return nil, err
		}
	}
	if s.open != nil {
		if err := excludes(ctx, s, dir); err != nil {
			return nil, err
		}
	}
	runtime.GC() // nobody pays for the garbage of the one before
	return j.kind.run(ctx, round{
		store: j.store, subject: s, servers: servers, dir: dir,
		window: budget / time.Duration(j.kind.rounds), budget: budget,
	})
}

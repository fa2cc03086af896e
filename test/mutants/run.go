package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// tryAll tries mutants, some at a time, each in a copy of the project.
func tryAll(ctx context.Context, root string, mutants []*mutant, jobs int, limit time.Duration) error {
	began := time.Now()
	copies := make([]*projectCopy, min(jobs, len(mutants)))
	for i := range copies {
		c, err := newCopy(ctx, root, mutants)
		if err != nil {
			return err
		}
		defer c.remove()
		copies[i] = c
	}
	byFolder := make(map[string][]*mutant)
	for _, m := range mutants {
		folder, _ := m.tests()
		byFolder[folder] = append(byFolder[folder], m)
	}
	r := &report{unfit: make(map[*mutant]string), total: len(mutants)}
	folders := slices.Sorted(maps.Keys(byFolder))
	err := inCopies(copies, folders, func(c *projectCopy, folder string) error {
		unfit := c.check(ctx, folder, byFolder[folder], 10*limit)
		r.mu.Lock()
		defer r.mu.Unlock()
		maps.Copy(r.unfit, unfit)
		return ctx.Err()
	})
	if err != nil {
		return err
	}
	checked := time.Since(began)
	err = inCopies(copies, mutants, func(c *projectCopy, m *mutant) error {
		start := time.Now()
		var err error
		if reason := r.unfit[m]; reason != "" {
			err = errors.New(reason)
		} else {
			err = c.try(ctx, m, limit)
		}
		if ctx.Err() == nil {
			r.add(m, time.Since(start), err)
		}
		return ctx.Err()
	})
	if err != nil {
		return err
	}
	return r.finish(checked, time.Since(began), copies)
}

// inCopies does each piece of work in one of the copies.
func inCopies[T any](copies []*projectCopy, work []T, do func(*projectCopy, T) error) error {
	todo := make(chan T, len(work))
	for _, w := range work {
		todo <- w
	}
	close(todo)
	errs := make([]error, len(copies))
	var running sync.WaitGroup
	for i, c := range copies {
		running.Go(func() {
			for w := range todo {
				if errs[i] = do(c, w); errs[i] != nil {
					return
				}
			}
		})
	}
	running.Wait()
	return errors.Join(errs...)
}

// report prints outcomes and counts them.
type report struct {
	mu     sync.Mutex
	unfit  map[*mutant]string // why its test shows nothing: it fails without the mutant, too
	total  int
	times  []string
	failed []string
}

func (r *report) add(m *mutant, took time.Duration, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	verdict := "caught"
	line := fmt.Sprintf("%6.1fs %s (%s)", took.Seconds(), m.rule, m.test)
	if err != nil {
		verdict = "FAILED: " + err.Error()
		r.failed = append(r.failed, m.rule)
	}
	r.times = append(r.times, line)
	fmt.Printf("%3d/%d %s: %s\n", len(r.times), r.total, line, verdict)
}

// finish prints the slowest mutants and the whole time.
func (r *report) finish(checked, took time.Duration, copies []*projectCopy) error {
	var cpu time.Duration
	for _, c := range copies {
		cpu += c.cpu
	}
	slices.Sort(r.times)
	slices.Reverse(r.times)
	fmt.Printf("slowest:\n%s\n", strings.Join(r.times[:min(10, len(r.times))], "\n"))
	fmt.Printf("%d mutants, %d not caught, in %v, of which %v to see the tests pass without them; %v of CPU\n",
		r.total, len(r.failed), took.Round(time.Second), checked.Round(time.Second), cpu.Round(time.Second))
	if len(r.failed) > 0 {
		return fmt.Errorf("not caught:\n%s", strings.Join(r.failed, "\n"))
	}
	return nil
}

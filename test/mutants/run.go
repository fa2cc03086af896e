package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// runAll tries mutants, some at a time, each in a copy of the project. Mutants of one test share a
// copy, which runs the test without a mistake only once.
func runAll(ctx context.Context, root string, mutants []*mutant, jobs int, limit time.Duration) error {
	groups := byTest(mutants)
	todo := make(chan []*mutant, len(groups))
	for _, group := range groups {
		todo <- group
	}
	close(todo)
	r := &report{total: len(mutants)}
	errs := make([]error, min(jobs, len(groups)))
	var work sync.WaitGroup
	for i := range errs {
		work.Go(func() { errs[i] = runGroups(ctx, root, todo, limit, r) })
	}
	work.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	fmt.Printf("%d mutants, %d caught, %d failed\n", r.tried, r.tried-r.failed, r.failed)
	if r.failed > 0 {
		return fmt.Errorf("%d of %d mutants were not caught", r.failed, r.tried)
	}
	return nil
}

// byTest groups mutants by their test, in the order of the table.
func byTest(mutants []*mutant) (groups [][]*mutant) {
	index := make(map[string]int)
	for _, m := range mutants {
		i, known := index[m.test]
		if !known {
			i = len(groups)
			index[m.test], groups = i, append(groups, nil)
		}
		groups[i] = append(groups[i], m)
	}
	return groups
}

// runGroups tries the mutants of groups in a copy until none is left or ctx ends.
func runGroups(ctx context.Context, root string, todo <-chan []*mutant, limit time.Duration, r *report) error {
	c, err := newCopy(ctx, root)
	if err != nil {
		return err
	}
	defer c.remove()
	c.limit = limit
	for group := range todo {
		for _, m := range group {
			began := time.Now()
			err := c.try(ctx, m)
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			r.add(m, time.Since(began), err)
		}
	}
	return nil
}

// report prints outcomes and counts them.
type report struct {
	mu                   sync.Mutex
	tried, failed, total int
}

func (r *report) add(m *mutant, took time.Duration, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tried++
	verdict := "caught"
	if err != nil {
		r.failed++
		verdict = "FAILED: " + err.Error()
	}
	fmt.Printf("%3d/%d %-6v %s: %s\n", r.tried, r.total, took.Round(100*time.Millisecond), m, verdict)
}

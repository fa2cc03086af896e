package main

import (
	"context"
	"runtime"
	"sync"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/memlock"
)

var memory = store{
	name:     "memory",
	open:     openMemory,
	held:     100_000,
	subjects: []subject{{name: "raw", open: openRawMemory}, direct("bare", openMemory, yield), library("dlock", openMemory)},
}

// yield lets another goroutine run: in memory no other wait is needed.
func yield(ctx context.Context) error {
	runtime.Gosched()
	return ctx.Err()
}

func openMemory(string) (func(context.Context) (opened, error), error) {
	s := memlock.New()
	return func(context.Context) (opened, error) {
		return opened{s, func() error { return nil }}, nil
	}, nil
}

// rawMemory is the floor: two operations on a map that a mutex guards.
type rawMemory struct {
	mu     sync.Mutex
	owners map[string]driver.Owner
}

func openRawMemory(string) (func(context.Context) (client, error), error) {
	m := &rawMemory{owners: make(map[string]driver.Owner)}
	return func(context.Context) (client, error) { return m, nil }, nil
}

func (m *rawMemory) worker(_ context.Context, name string) (worker, error) {
	return &rawMemoryWorker{m, name, driver.NewOwner()}, nil
}

func (m *rawMemory) commands() (uint64, bool) { return 0, false }
func (m *rawMemory) close() error             { return nil }

type rawMemoryWorker struct {
	*rawMemory
	name  string
	owner driver.Owner
}

func (w *rawMemoryWorker) lock(ctx context.Context) error {
	for !w.try() {
		if err := yield(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (w *rawMemoryWorker) try() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, held := w.owners[w.name]; held {
		return false
	}
	w.owners[w.name] = w.owner
	return true
}

func (w *rawMemoryWorker) unlock(context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.owners[w.name] != w.owner {
		return driver.ErrNotHeld
	}
	delete(w.owners, w.name)
	return nil
}

package subjects

import (
	"context"
	"runtime"
	"sync"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/memlock"
)

var Memory = Store{
	Name: "memory",
	Open: openMemory,
	Held: 100_000,
	Subjects: []Subject{
		{Name: "raw", Open: openRawMemory},
		direct("bare", openMemory, yield),
		library("dlock", openMemory).modes(),
		library("dlock", openMemory).modes().exclusive(),
	},
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

func openRawMemory(string) (func(context.Context) (Client, error), error) {
	m := &rawMemory{owners: make(map[string]driver.Owner)}
	return func(context.Context) (Client, error) { return m, nil }, nil
}

func (m *rawMemory) Worker(_ context.Context, name string) (Worker, error) {
	return &rawMemoryWorker{m, name, driver.NewOwner()}, nil
}

func (m *rawMemory) Commands() (uint64, bool) { return 0, false }
func (m *rawMemory) Close() error             { return nil }

type rawMemoryWorker struct {
	*rawMemory
	name  string
	owner driver.Owner
}

func (w *rawMemoryWorker) Lock(ctx context.Context) error {
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

func (w *rawMemoryWorker) Unlock(context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.owners[w.name] != w.owner {
		return driver.ErrNotHeld
	}
	delete(w.owners, w.name)
	return nil
}

package subjects

import (
	"context"
	"runtime"
	"sync"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/memlock"
)

// Memory is the store in memory.
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

// memory is the state in memory of one round.
type memory struct {
	store *memlock.Store

	mu     sync.Mutex
	owners map[string]driver.Owner // of the floor
}

func newMemory() *memory {
	return &memory{store: memlock.New(), owners: make(map[string]driver.Owner)}
}

func openMemory(_ context.Context, at Place) (Watched, error) { return at.memory.store, nil }

// openRawMemory opens the floor: two operations on a map that a mutex guards.
func openRawMemory(_ context.Context, at Place) (*Client, error) {
	m := at.memory
	newWorker := func(name string) Worker {
		owner := driver.NewOwner()
		return Worker{
			Lock: func(ctx context.Context) error {
				for !m.lock(name, owner) {
					if err := yield(ctx); err != nil {
						return err
					}
				}
				return nil
			},
			Unlock: func(context.Context) error { return released(m.unlock(name, owner), nil) },
		}
	}
	return &Client{Worker: workers(newWorker), Close: func() error { return nil }}, nil
}

func (m *memory) lock(name string, owner driver.Owner) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, held := m.owners[name]; held {
		return false
	}
	m.owners[name] = owner
	return true
}

func (m *memory) unlock(name string, owner driver.Owner) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.owners[name] != owner {
		return false
	}
	delete(m.owners, name)
	return true
}

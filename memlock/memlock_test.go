package memlock_test

import (
	"context"
	"testing"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/drivertest"
	"github.com/dlock-go/dlock/memlock"
)

// TestConformance runs the kit on one store that all clients share. There is no
// Worker, because a store in memory ends with its process, and no Skewed,
// because it takes no time from its clients.
func TestConformance(t *testing.T) {
	store := memlock.New()
	drivertest.Run(t, drivertest.Config{
		Open:      func(context.Context) (driver.Store, error) { return store, nil },
		Leftovers: func(context.Context) ([]string, error) { return store.Leftovers(), nil },
	})
}

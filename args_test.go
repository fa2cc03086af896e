package dlock_test

import (
	"os"
	"testing"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/memlock"
)

// A program may be started without arguments, not even its own name.
func TestNewWithoutArguments(t *testing.T) {
	args := os.Args
	defer func() { os.Args = args }()
	os.Args = nil
	bubble(t, func(t *testing.T, store *memlock.Store) {
		c := dlock.New(store, nil)
		defer c.Close()
		lease := mustLock(t, c, t.Context(), "x")
		if info, held, err := c.Find(t.Context(), "x"); err != nil || !held || info.Holder.Program != "" {
			t.Errorf("%+v, %v, %v; want a holder without a program", info, held, err)
		}
		mustUnlock(t, lease)
	})
}

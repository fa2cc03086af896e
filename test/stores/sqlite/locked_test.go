package sqlite

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/test/harness/await"
)

// TestAnotherProgramKeepsDatabaseLocked: if the time of a call goes by because a transaction
// of another program has locked the file, the error says so.
func TestAnotherProgramKeepsDatabaseLocked(t *testing.T) {
	t.Parallel()
	path := tempFile(t)
	store := openStore(t, path)
	tx, err := openDB(t, path).BeginTx(t.Context(), nil) // which locks it
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	const patience = time.Second // long enough for an attempt
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for name, err := range map[string]error{
		"Acquire": func() error { _, err := store.Acquire(ctx, request("x")); return err }(),
		"TryLock": func() error {
			client := dlock.New(store, &dlock.Options{RequestTimeout: patience})
			defer client.Close()
			_, err := client.TryLock(t.Context(), "x")
			return err
		}(),
	} {
		if !errors.Is(err, driver.ErrUnreachable) || !errors.Is(err, context.DeadlineExceeded) ||
			!strings.Contains(err.Error(), "another program keeps the database locked") {
			t.Errorf("%s: %v; want an error that says that another program keeps the database locked", name, err)
		}
	}
}

// TestRefusalNeedsNoWriter: an attempt for a lock that is held is refused while another
// process writes. In a crowd of processes each would otherwise wait for its turn to write.
func TestRefusalNeedsNoWriter(t *testing.T) {
	t.Parallel()
	path := tempFile(t)
	mustAcquire(t, openStore(t, path), request("x"))
	store := openStore(t, path)
	tx, err := openDB(t, path).BeginTx(t.Context(), nil) // which locks it
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	ctx, cancel := context.WithTimeout(t.Context(), await.Limit)
	defer cancel()
	if _, err := store.Acquire(ctx, request("x")); !errors.Is(err, driver.ErrHeld) {
		t.Errorf("Acquire of a lock that is held: %v; want ErrHeld", err)
	}
}

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

// lockFile begins a transaction, which keeps the file locked until the test ends.
func lockFile(t *testing.T, path string) {
	t.Helper()
	tx, err := openDB(t, path).BeginTx(t.Context(), nil)
	check(t, err)
	t.Cleanup(func() { _ = tx.Rollback() }) // unless the end of the context has
}

// TestAnotherProgramKeepsDatabaseLocked: if the time of a call goes by because a transaction
// of another program has locked the file, the error says so.
func TestAnotherProgramKeepsDatabaseLocked(t *testing.T) {
	t.Parallel()
	path := tempFile(t)
	store := openStore(t, path)
	lockFile(t, path)
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
	lockFile(t, path)
	ctx, cancel := context.WithTimeout(t.Context(), await.Limit)
	defer cancel()
	if _, err := store.Acquire(ctx, request("x")); !errors.Is(err, driver.ErrHeld) {
		t.Errorf("Acquire of a lock that is held: %v; want ErrHeld", err)
	}
}

// TestQueuedAttemptIsNotSent: an attempt whose context ends while it waits for the only writer was never
// sent: its caller has nothing to undo.
func TestQueuedAttemptIsNotSent(t *testing.T) {
	t.Parallel()
	path := tempFile(t)
	store := openStore(t, path)
	lockFile(t, path)
	await.Until(t, "an attempt that had the writer has an unknown outcome", func() bool {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		first := make(chan error, 1)
		go func() {
			_, err := store.Acquire(ctx, request("first"))
			first <- err
		}()
		await.Until(t, "an attempt waits for the writer", func() bool {
			short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer cancel()
			_, err := store.Acquire(short, request("second"))
			return driver.Unchanged(err)
		})
		cancel()
		err := <-first
		if err == nil {
			t.Fatal("the first attempt was granted although the file is locked")
		}
		return !driver.Unchanged(err) // otherwise the janitor had the writer, and both attempts waited
	})
}

package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dlock-go/dlock/sqllock"
	"github.com/dlock-go/dlock/test/harness/await"
)

// TestOpeningWritesNothingWhereTablesAre: a process that starts together with others, and waits to create
// the tables, goes on when they are there, although the others keep the file locked.
func TestOpeningWritesNothingWhereTablesAre(t *testing.T) {
	t.Parallel()
	path := tempFile(t)
	other, err := openDB(t, path).Conn(t.Context())
	check(t, err)
	defer other.Close()
	begin := func() { run(t, other, `BEGIN IMMEDIATE`) }
	begin()
	opened := make(chan error, 1)
	go func() {
		store, err := openFile(context.Background(), path)
		if err == nil {
			err = store.Close()
		}
		opened <- err
	}()
	select {
	case err := <-opened:
		t.Fatalf("the store is open before there are tables: %v", err)
	case <-time.After(300 * time.Millisecond): // it waits to create them
	}
	schema, err := sqllock.Schema(sqllock.SQLite, "")
	check(t, err)
	for _, text := range append(schema, `COMMIT`) {
		run(t, other, text)
	}
	begin()
	if err := await.Event(t, opened, "the opened store"); err != nil {
		t.Error(err)
	}
}

// readOnlyOnce opens, as an ordinary user, a database that is read-only for a while, and says why there is
// no lock afterwards.
func readOnlyOnce(args []string) error {
	path, ctx := args[0], context.Background()
	const nobody = 65534
	if err := syscall.Setuid(nobody); err != nil {
		return err
	}
	open := func(mode fs.FileMode, use func(*sqllock.Store) error) error {
		if err := os.Chmod(path, mode); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		store, err := sqllock.Open(ctx, "sqlite://"+path, nil)
		if err != nil {
			return err
		}
		return errors.Join(use(store), store.Close())
	}
	look := func(store *sqllock.Store) error {
		_, err := store.Diagnose(ctx)
		return err
	}
	if err := errors.Join(open(0o644, look), open(0o444, look)); err != nil {
		return err
	}
	return open(0o644, func(store *sqllock.Store) error {
		_, err := store.Acquire(ctx, request("x"))
		fmt.Println(err)
		findings, err := store.Diagnose(ctx)
		for _, f := range findings {
			if f.Check == "writable" {
				fmt.Println(f.Message)
			}
		}
		return err
	})
}

// TestFileInTheWayIsNamed: SQLite leaves files beside a database that was read-only once, which nobody can
// write. The error names them.
func TestFileInTheWayIsNamed(t *testing.T) {
	t.Parallel()
	path := tempFile(t)
	for folder := filepath.Dir(path); folder != os.TempDir(); folder = filepath.Dir(folder) {
		check(t, os.Chmod(folder, 0o777))
	}
	p := startProcess(t, "once", path)
	for _, what := range []string{"Acquire", "Diagnose"} {
		if text := p.hear(); !strings.Contains(text, path+"-shm cannot be written") {
			t.Errorf("%s: %s; want an error that names %s", what, text, path+"-shm")
		}
	}
}

package sqlite

import (
	"context"
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
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	run := func(statements ...string) {
		t.Helper()
		for _, statement := range statements {
			if _, err := other.ExecContext(t.Context(), statement); err != nil {
				t.Fatal(err)
			}
		}
	}
	run(`BEGIN IMMEDIATE`)
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
	if err != nil {
		t.Fatal(err)
	}
	run(schema...)
	run(`COMMIT`, `BEGIN IMMEDIATE`)
	if err := await.Event(t, opened, "the opened store"); err != nil {
		t.Error(err)
	}
}

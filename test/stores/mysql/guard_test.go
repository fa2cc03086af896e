package mysql

import (
	"errors"
	"testing"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/sqllock"
	"github.com/dlock-go/dlock/test/stores/sqlrig"
)

// TestConnectionsStayTheApplications: what transactions of the store set for themselves,
// those of the application, on the same connection, do not find.
func TestConnectionsStayTheApplications(t *testing.T) {
	t.Parallel()
	db, opts, err := database.Pool(database.URL(t, "max_open=1", "idle_transaction_timeout=55",
		"idle_write_transaction_timeout=66", "idle_readonly_transaction_timeout=77"))
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	type connection struct {
		id, any, write, read int
		isolation            string
	}
	look := func() (c connection) {
		t.Helper()
		const settings = `SELECT CONNECTION_ID(), @@idle_transaction_timeout, @@idle_write_transaction_timeout,
	@@idle_readonly_transaction_timeout, @@tx_isolation`
		if err := db.QueryRowContext(sqlrig.Within(t), settings).Scan(&c.id, &c.any, &c.write, &c.read, &c.isolation); err != nil {
			t.Fatal(err)
		}
		return c
	}
	before := look()
	store, err := sqllock.New(t.Context(), db, opts)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	both := []driver.Request{sqlrig.Request("x"), sqlrig.Request("y")}
	if _, err := store.AcquireAll(sqlrig.Within(t), both); err != nil {
		t.Fatal(err)
	}
	if after := look(); after != before {
		t.Errorf("after a transaction %+v, before it %+v", after, before)
	}
	both[0].Owner = driver.NewOwner()
	if _, err := store.AcquireAll(sqlrig.Within(t), both); !errors.Is(err, driver.ErrHeld) {
		t.Fatalf("AcquireAll of what is held: %v; want ErrHeld", err)
	}
	if after := look(); after != before {
		t.Errorf("after one that was rolled back %+v, before it %+v", after, before)
	}
}

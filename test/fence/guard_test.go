package fence

import (
	"database/sql"
	"errors"
	"strings"
	"testing"

	"github.com/dlock-go/dlock/fence"
	"github.com/dlock-go/dlock/test/harness/proxy"
	"github.com/dlock-go/dlock/test/harness/servers"
)

func TestGuard(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db database) {
		orders := db.orders(t)
		write := func(token uint64, state string) error {
			return orders.Do(t.Context(), db, 42, token, set(t, state))
		}
		for range 2 { // a token may be repeated
			if err := write(5, "packed"); err != nil {
				t.Errorf("token 5: %v", err)
			}
		}
		if err := write(4, "cancelled"); !errors.Is(err, fence.ErrStale) {
			t.Errorf("token 4 after 5: %v", err)
		}
		db.order(t, "packed", 5)

		called := false
		err := orders.Do(t.Context(), db, 43, 5, func(*sql.Tx) error { called = true; return nil })
		if !errors.Is(err, fence.ErrNoRow) || called {
			t.Errorf("a missing row: %v, and the write was called: %v", err, called)
		}

		failure := errors.New("out of stock")
		err = orders.Do(t.Context(), db, 42, 6, func(tx *sql.Tx) error { return errors.Join(set(t, "paid")(tx), failure) })
		if !errors.Is(err, failure) {
			t.Errorf("a write that fails: %v", err)
		}
		db.order(t, "packed", 5) // the token is rolled back, too

		conn, err := db.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := orders.Do(t.Context(), conn, 42, 1<<62, set(t, "sent")); err != nil {
			t.Errorf("on a connection, with a large token: %v", err)
		}
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
		db.order(t, "sent", 1<<62)
	})
}

func TestGuardInATransactionOfTheApplication(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db database) {
		orders := db.orders(t)
		tx := db.begin(t, nil)
		for range 2 { // the second time, within the same transaction
			if err := orders.Advance(t.Context(), tx, 42, 5); err != nil {
				t.Fatal(err)
			}
		}
		if err := orders.Advance(t.Context(), tx, 42, 4); !errors.Is(err, fence.ErrStale) {
			t.Errorf("token 4 after 5: %v", err)
		}
		if err := errors.Join(set(t, "paid")(tx), tx.Commit()); err != nil {
			t.Error(err)
		}
		db.order(t, "paid", 5)
	})
}

// snapshots are the isolation levels at which another transaction can write a row
// that was read.
var snapshots = map[fence.Dialect][]sql.IsolationLevel{
	fence.SQLite:     {sql.LevelDefault},
	fence.MySQL:      {sql.LevelDefault, sql.LevelReadCommitted, sql.LevelRepeatableRead},
	fence.PostgreSQL: {sql.LevelDefault, sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable},
}

// A transaction that has read the row before the guard may see an old version.
// The guard rejects it all the same.
func TestOldSnapshotIsRefused(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db database) {
		orders := db.orders(t)
		for _, isolation := range snapshots[db.dialect] {
			db.must(t, "UPDATE orders SET fence = 0")
			tx := db.begin(t, &sql.TxOptions{Isolation: isolation})
			var seen int
			if err := tx.QueryRowContext(t.Context(), "SELECT fence FROM orders WHERE id = 42").Scan(&seen); err != nil || seen != 0 {
				t.Fatalf("token %d, %v", seen, err)
			}
			if err := orders.Do(t.Context(), db, 42, 9, set(t, "paid")); err != nil {
				t.Fatal(err)
			}
			err := orders.Advance(t.Context(), tx, 42, 5)
			t.Logf("%v: %v", isolation, err)
			// The others reject any write on an old snapshot.
			tells := db.dialect == fence.MySQL || db.dialect == fence.PostgreSQL && isolation < sql.LevelRepeatableRead
			if err == nil || tells && !errors.Is(err, fence.ErrStale) {
				t.Errorf("%v: token 5 after 9, by a transaction that began before: %v", isolation, err)
			}
			_ = tx.Rollback() // the transaction may have ended already
		}
		db.order(t, "paid", 9)
	})
}

func TestNamesFollowTheDatabase(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db database) {
		quote := map[fence.Dialect]string{fence.SQLite: `"`, fence.MySQL: "`", fence.PostgreSQL: `"`}[db.dialect]
		words := strings.NewReplacer("[", quote, "]", quote)
		db.must(t,
			words.Replace("CREATE TABLE [order] ([key] VARCHAR(20) PRIMARY KEY, [select] BIGINT)"), // NULL is no token
			words.Replace("INSERT INTO [order] ([key]) VALUES ('a')"))
		row := fence.Row{Table: "order", Key: "key", Column: "select"}
		advance := func(row fence.Row, token uint64) error {
			return db.guard(t, row).Do(t.Context(), db, "a", token, func(*sql.Tx) error { return nil })
		}
		if err := advance(row, 7); err != nil {
			t.Errorf("names that are words of SQL: %v", err)
		}
		if err := advance(row, 6); !errors.Is(err, fence.ErrStale) {
			t.Errorf("token 6 after 7: %v", err)
		}
		for _, wrong := range []fence.Row{
			{Table: "orders", Key: "key", Column: "select"},
			{Table: "order", Key: "id", Column: "select"},
			{Table: "order", Key: "key"},
		} {
			if err := advance(wrong, 8); err == nil || errors.Is(err, fence.ErrNoRow) || errors.Is(err, fence.ErrStale) {
				t.Errorf("%+v, which does not exist: %v; want the error of the database", wrong, err)
			}
		}
	})
}

func TestKeyOfSeveralRowsIsRefused(t *testing.T) {
	eachDatabase(t, func(t *testing.T, db database) {
		db.must(t, "CREATE TABLE items (kind VARCHAR(20), fence BIGINT)", "INSERT INTO items (kind) VALUES ('a'), ('a')")
		items := db.guard(t, fence.Row{Table: "items", Key: "kind"})
		err := items.Do(t.Context(), db, "a", 1, func(*sql.Tx) error { return nil })
		if err == nil || !strings.Contains(err.Error(), "2 rows") {
			t.Errorf("two rows with the same key: %v", err)
		}
	})
}

// Another transaction inserts the row after the guard did not find it, and before
// the second attempt. The guard writes the token all the same.
func TestRowInsertedInBetween(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.Postgres)
	direct := openPostgres(t, server.URL())
	orders := direct.orders(t)
	direct.must(t, "DELETE FROM orders")
	p := proxy.Run(t, server.Addr())
	through := openPostgres(t, strings.Replace(server.URL(), server.Addr(), p.Addr(), 1))
	inserted := p.OnRequest(
		func(request []byte) bool { return strings.Contains(string(request), `SELECT "fence"`) },
		func(*proxy.Conn) {
			if _, err := direct.ExecContext(t.Context(), "INSERT INTO orders (id, state, fence) VALUES (42, 'new', 3)"); err != nil {
				t.Error(err)
			}
		})
	if err := orders.Do(t.Context(), through, 42, 5, set(t, "paid")); err != nil {
		t.Errorf("token 5: %v", err)
	}
	select {
	case <-inserted:
	default:
		t.Error("the row was not inserted in between")
	}
	direct.order(t, "paid", 5)
}

func (d database) begin(t *testing.T, opts *sql.TxOptions) *sql.Tx {
	t.Helper()
	tx, err := d.BeginTx(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	return tx
}

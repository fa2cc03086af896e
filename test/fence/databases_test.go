package fence

import (
	"database/sql"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dlock-go/dlock/fence"
	"github.com/dlock-go/dlock/test/harness/servers"
	"github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"
)

// database is a database of one test.
type database struct {
	*sql.DB
	dialect fence.Dialect
}

// databases are the databases whose rows are guarded.
var databases = []struct {
	name string
	open func(t *testing.T) database
}{
	{"sqlite", openSQLite},
	{"mariadb", func(t *testing.T) database {
		return openMariaDB(t, servers.Run(t, servers.MariaDB).URL(), false)
	}},
	{"mariadb with found rows", func(t *testing.T) database {
		return openMariaDB(t, servers.Run(t, servers.MariaDB).URL(), true)
	}},
	{"postgres", func(t *testing.T) database {
		return openPostgres(t, servers.Run(t, servers.Postgres).URL())
	}},
}

// eachDatabase runs a test on every database.
func eachDatabase(t *testing.T, test func(t *testing.T, db database)) {
	t.Parallel()
	for _, d := range databases {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			test(t, d.open(t))
		})
	}
}

func openSQLite(t *testing.T) database {
	t.Helper()
	path := filepath.Join(t.TempDir(), "application.db")
	return open(t, fence.SQLite, "sqlite", "file:"+path+"?_pragma=busy_timeout(20000)&_pragma=journal_mode(WAL)")
}

// openMariaDB opens a database in the given SQL mode, by default in the server's
// own.
func openMariaDB(t *testing.T, address string, foundRows bool, mode ...string) database {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	config := mysql.NewConfig()
	config.User = u.User.Username()
	config.Passwd, _ = u.User.Password()
	config.Net, config.Addr, config.DBName = "tcp", u.Host, strings.TrimPrefix(u.Path, "/")
	config.ClientFoundRows = foundRows
	for _, m := range mode {
		config.Params = map[string]string{"sql_mode": "'" + m + "'"}
	}
	return open(t, fence.MySQL, "mysql", config.FormatDSN())
}

func openPostgres(t *testing.T, address string) database {
	t.Helper()
	return open(t, fence.PostgreSQL, "pgx", address)
}

func open(t *testing.T, dialect fence.Dialect, driver, source string) database {
	t.Helper()
	db, err := sql.Open(driver, source)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return database{db, dialect}
}

// must executes statements that have to succeed.
func (d database) must(t *testing.T, statements ...string) {
	t.Helper()
	for _, statement := range statements {
		if _, err := d.ExecContext(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
}

// orders creates a table with order 42, and returns its guard.
func (d database) orders(t *testing.T) *fence.Guard {
	t.Helper()
	d.must(t,
		"CREATE TABLE orders (id BIGINT PRIMARY KEY, state VARCHAR(100) NOT NULL, fence BIGINT NOT NULL DEFAULT 0)",
		"INSERT INTO orders (id, state) VALUES (42, 'new')")
	return d.guard(t, fence.Row{Table: "orders", Key: "id"})
}

func (d database) guard(t *testing.T, row fence.Row) *fence.Guard {
	t.Helper()
	row.Dialect = d.dialect
	guard, err := fence.New(row)
	if err != nil {
		t.Fatal(err)
	}
	return guard
}

// order checks the state of order 42.
func (d database) order(t *testing.T, state string, token uint64) {
	t.Helper()
	var gotState string
	var gotToken uint64
	if err := d.QueryRowContext(t.Context(), "SELECT state, fence FROM orders WHERE id = 42").Scan(&gotState, &gotToken); err != nil {
		t.Fatal(err)
	}
	if gotState != state || gotToken != token {
		t.Errorf("the order is %q with token %d, want %q with token %d", gotState, gotToken, state, token)
	}
}

// set returns a write of order 42.
func set(t *testing.T, state string) func(tx *sql.Tx) error {
	return func(tx *sql.Tx) error {
		_, err := tx.ExecContext(t.Context(), "UPDATE orders SET state = '"+state+"' WHERE id = 42")
		return err
	}
}

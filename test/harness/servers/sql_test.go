package servers

import (
	"database/sql"
	"errors"
	"net/url"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
)

// connect opens the database at a URL as applications do.
func connect(t *testing.T, address string) *sql.DB {
	t.Helper()
	driver, source := "pgx", address
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	if u.Scheme == "mysql" {
		config := mysql.NewConfig()
		config.User = u.User.Username()
		config.Passwd, _ = u.User.Password()
		config.Net, config.Addr, config.DBName = "tcp", u.Host, strings.TrimPrefix(u.Path, "/")
		driver, source = "mysql", config.FormatDSN()
	}
	db, err := sql.Open(driver, source)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

func TestUserWithFewRights(t *testing.T) {
	for _, c := range []struct {
		kind   *Kind
		create string
	}{
		{MariaDB, "CREATE USER 'little'@'%' IDENTIFIED BY 's/e:c@ret'; GRANT SELECT ON dlock.* TO 'little'@'%'"},
		{Postgres, "CREATE USER little PASSWORD 's/e:c@ret'; GRANT SELECT ON kept TO little"},
	} {
		t.Run(c.kind.Name, func(t *testing.T) {
			t.Parallel()
			s := Run(t, c.kind)
			sqlOf(t, s, "CREATE TABLE kept (id INT)")
			sqlOf(t, s, c.create)
			db := connect(t, s.URLAs("little", "s/e:c@ret"))
			var n int
			if err := db.QueryRowContext(t.Context(), "SELECT count(*) FROM kept").Scan(&n); err != nil {
				t.Errorf("a granted statement: %v", err)
			}
			if _, err := db.ExecContext(t.Context(), "INSERT INTO kept VALUES (1)"); err == nil || !strings.Contains(err.Error(), "denied") {
				t.Errorf("a statement without the right: %v, want a denial", err)
			}
		})
	}
}

func TestSQLReportsErrors(t *testing.T) {
	t.Parallel()
	if _, err := Run(t, Redis).SQL(t.Context(), "SELECT 1"); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("SQL for Redis: %v", err)
	}
	if out, err := Run(t, Postgres).SQL(t.Context(), "SELECT nonsense"); err == nil || !strings.Contains(err.Error(), `"nonsense" does not exist`) {
		t.Errorf("a wrong statement: %q, %v", out, err)
	}
}

func TestKillConnections(t *testing.T) {
	for _, kind := range []*Kind{MariaDB, Postgres} {
		t.Run(kind.Name, func(t *testing.T) {
			t.Parallel()
			s := Run(t, kind)
			db := connect(t, s.URL())
			conn, err := db.Conn(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			for range 2 { // the second time there are no connections
				try(t, func() error { return s.KillConnections(t.Context()) })
			}
			if _, err := conn.ExecContext(t.Context(), "SELECT 1"); err == nil {
				t.Error("the connection still works")
			}
			if err := db.PingContext(t.Context()); err != nil {
				t.Errorf("a new connection: %v", err)
			}
		})
	}
	if err := Run(t, Redis).KillConnections(t.Context()); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("KillConnections of Redis: %v", err)
	}
}

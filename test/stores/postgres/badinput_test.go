package postgres

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dlock-go/dlock/test/harness/command"
	"github.com/dlock-go/dlock/test/harness/servers"
	"github.com/dlock-go/dlock/test/stores/sqlrig"
)

func TestLeastRights(t *testing.T) {
	t.Parallel()
	sqlrig.EachScheme(t, database.LeastRights)
}

func TestPrefixes(t *testing.T) {
	t.Parallel()
	sqlrig.EachScheme(t, func(t *testing.T, scheme string) { database.Prefixes(t, database.URL(t, scheme)) })
}

// suspicious starts a server that asks every user but its superuser for a password.
func suspicious(t *testing.T, args ...string) *servers.Server {
	t.Helper()
	server := servers.Run(t, servers.Postgres, args...)
	const rules = "local all postgres trust\nhost all postgres all trust\nlocal all all scram-sha-256\nhost all all all scram-sha-256\n"
	if err := os.WriteFile(filepath.Join(server.Dir(), "data", "pg_hba.conf"), []byte(rules), 0o644); err != nil {
		t.Fatal(err)
	}
	sqlrig.Exec(t, database.DB(t, server.URL()), "SELECT pg_reload_conf()")
	return server
}

func TestBadInput(t *testing.T) {
	t.Parallel()
	server := suspicious(t)
	raw := database.On(t, server)
	sqlrig.Exec(t, database.DB(t, raw), "CREATE ROLE ann LOGIN PASSWORD 'right'")
	sqlrig.Eventually(t, "the server asks for passwords", func() bool {
		db := database.DB(t, sqlrig.As(t, raw, "ann", "wrong"))
		return db.PingContext(t.Context()) != nil
	})
	for _, scheme := range sqlrig.Schemes {
		raw := sqlrig.With(raw, "scheme="+scheme)
		database.Refused(t, sqlrig.As(t, raw, "ann", "wrong"), "password authentication failed")
		database.Refused(t, sqlrig.As(t, raw, "nobody", "x"), "password authentication failed")
		database.Refused(t, sqlrig.At(raw, "127.0.0.1:1"), "connection refused")
		database.Refused(t, strings.Replace(raw, "/test", "/nosuch", 1), "does not exist")
		database.Refused(t, sqlrig.With(raw, "default_transaction_read_only=on"), "read-only")
	}
}

// TestReadOnly: a replica is refused.
func TestReadOnly(t *testing.T) {
	t.Parallel()
	pair := servers.RunPostgresPair(t, servers.PairOptions{})
	for _, scheme := range sqlrig.Schemes {
		database.Refused(t, sqlrig.With(pair.Replica.URL(), "scheme="+scheme), "read-only") // there are no tables
	}
	database.Opened(t, pair.Primary.URL())
	if err := pair.WaitCaughtUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, scheme := range sqlrig.Schemes {
		database.Refused(t, sqlrig.With(pair.Replica.URL(), "scheme="+scheme), "read-only")
	}
}

func TestCommand(t *testing.T) {
	t.Parallel()
	for _, scheme := range []string{"row", "version", "forupdate", "session"} {
		t.Run(scheme, func(t *testing.T) {
			t.Parallel()
			database.Command(t, database.URL(t, "scheme="+scheme))
		})
	}
	t.Run("socket, IPv6, and a password of odd characters", func(t *testing.T) {
		t.Parallel()
		const password = `p@ss:/?#[]&= %ü"`
		server := suspicious(t, "-k", ".", "-h", "127.0.0.1,::1")
		admin := database.DB(t, server.URL())
		if err := database.CreateUser(t.Context(), admin, "odd", password); err != nil {
			t.Fatal(err)
		}
		sqlrig.Exec(t, admin, "GRANT ALL ON SCHEMA public TO odd")
		_, port, _ := strings.Cut(server.Addr(), ":")
		raw := sqlrig.At(sqlrig.As(t, server.URL(), "odd", password), "[::1]:"+port)
		database.Command(t, raw)
		socket := sqlrig.With(sqlrig.At(raw, ""), "host="+filepath.Join(server.Dir(), "data"), "port="+port)
		database.Command(t, strings.Replace(socket, "postgres://", "postgresql://", 1))
	})
}

func TestCommandWithBadInput(t *testing.T) {
	t.Parallel()
	raw := database.URL(t)
	little := sqlrig.As(t, raw, "little", sqlrig.Canary)
	if err := database.CreateUser(t.Context(), database.DB(t, raw), "little", sqlrig.Canary); err != nil {
		t.Fatal(err)
	}
	sqlrig.CommandRefuses(t, map[string]command.Result{
		"postgres://127.0.0.1":                                {Status: 64, Stderr: "database is missing"},
		sqlrig.With(raw, "scheme=xyz"):                        {Status: 64, Stderr: "row, version, forupdate or session"},
		sqlrig.With(raw, "table_prefix=a-b"):                  {Status: 64, Stderr: "letters, digits and _"},
		sqlrig.With(raw, "sslmode=xyz"):                       {Status: 64, Stderr: "sslmode"},
		"postgres://u:" + sqlrig.Canary + "@127.0.0.1:1/x":    {Status: 69, Stderr: "connection refused"},
		"postgres://u:" + sqlrig.Canary + "@nosuch.invalid/x": {Status: 69, Stderr: "nosuch.invalid"},
		strings.Replace(raw, "/test", "/nosuch", 1):           {Status: 78, Stderr: "there is no such database"},
		sqlrig.As(t, raw, "nobody", sqlrig.Canary):            {Status: 77, Stderr: "does not exist"},
		little:                                {Status: 77, Stderr: "permission denied"},
		sqlrig.With(little, "scheme=session"): {Status: 77, Stderr: "permission denied"},
	})
}

// TestCommandBehindPgBouncer: locks that are connections are refused, with the reason.
func TestCommandBehindPgBouncer(t *testing.T) {
	t.Parallel()
	raw := pooled(t)
	sqlrig.CommandRefuses(t, map[string]command.Result{
		sqlrig.With(raw, "scheme=session"):   {Status: 78, Stderr: "PgBouncer"},
		sqlrig.With(raw, "scheme=forupdate"): {Status: 78, Stderr: "PgBouncer"},
	})
}

func TestOpenURL(t *testing.T) {
	t.Parallel()
	database.OpenURL(t)
}

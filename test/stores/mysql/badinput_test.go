package mysql

import (
	"net/url"
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

func TestBadInput(t *testing.T) {
	t.Parallel()
	sqlrig.EachScheme(t, func(t *testing.T, scheme string) {
		raw := database.URL(t, scheme)
		database.Refused(t, sqlrig.As(t, raw, "dlock", "wrong"), "Access denied")
		database.Refused(t, sqlrig.As(t, raw, "nobody", "x"), "Access denied")
		database.Refused(t, sqlrig.At(raw, "127.0.0.1:1"), "connection refused")
		missing := strings.Replace(raw, "/test", "/nosuch", 1)
		database.Refused(t, missing, "Unknown database")
	})
}

// TestReadOnly: a replica, or a server that is read-only, is refused.
func TestReadOnly(t *testing.T) {
	t.Parallel()
	pair := servers.RunMariaDBPair(t, servers.PairOptions{})
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

// TestUnfitSettings: what the store cannot work with is refused before a lock is granted.
func TestUnfitSettings(t *testing.T) {
	t.Parallel()
	sqlrig.EachScheme(t, func(t *testing.T, scheme string) {
		raw := database.URL(t, scheme)
		database.Refused(t, sqlrig.With(raw, "autocommit=0"), "autocommit is off")
		database.Refused(t, sqlrig.With(raw, "completion_type=CHAIN"), "completion_type is CHAIN")
		database.Refused(t, sqlrig.With(raw, "sql_safe_updates=1"), "sql_safe_updates is on")
	})
}

func TestCommand(t *testing.T) {
	t.Parallel()
	for _, scheme := range []string{"row", "version", "forupdate", "session"} {
		t.Run(scheme, func(t *testing.T) {
			t.Parallel()
			database.Command(t, database.URL(t, "scheme="+scheme))
		})
	}
	t.Run("socket", func(t *testing.T) {
		t.Parallel()
		server := servers.Run(t, servers.MariaDB)
		database.Command(t, "mariadb://dlock:dlock@/dlock?socket="+url.QueryEscape(server.Dir()+"/sock"))
	})
	t.Run("IPv6 and a password of odd characters", func(t *testing.T) {
		t.Parallel()
		const password = `p@ss:/?#[]&= %ü"`
		server := servers.Run(t, servers.MariaDB, "--bind-address=*")
		admin := database.DB(t, server.URL())
		if err := database.CreateUser(t.Context(), admin, "odd", password); err != nil {
			t.Fatal(err)
		}
		if err := database.Grant(t.Context(), admin, "odd", "ALL"); err != nil {
			t.Fatal(err)
		}
		_, port, _ := strings.Cut(server.Addr(), ":")
		database.Command(t, sqlrig.At(sqlrig.As(t, server.URL(), "odd", password), "[::1]:"+port))
	})
}

func TestCommandWithBadInput(t *testing.T) {
	t.Parallel()
	raw := database.URL(t)
	little := sqlrig.As(t, raw, "little", sqlrig.Canary)
	admin := database.DB(t, raw)
	if err := database.CreateUser(t.Context(), admin, "little", sqlrig.Canary); err != nil {
		t.Fatal(err)
	}
	if err := database.Grant(t.Context(), admin, "little", "SELECT"); err != nil {
		t.Fatal(err)
	}
	sqlrig.CommandRefuses(t, map[string]command.Result{
		"mysql://":                                         {Status: 64, Stderr: "database is missing"},
		sqlrig.With(raw, "scheme=xyz"):                     {Status: 64, Stderr: "row, version, forupdate or session"},
		sqlrig.With(raw, "autocommit=0"):                   {Status: 78, Stderr: "autocommit is off"},
		sqlrig.With(raw, "table_prefix=a-b"):               {Status: 64, Stderr: "letters, digits and _"},
		sqlrig.As(t, raw, "dlock", sqlrig.Canary):          {Status: 77, Stderr: "wrong user or password"},
		"mysql://u:" + sqlrig.Canary + "@127.0.0.1:1/x":    {Status: 69, Stderr: "connection refused"},
		"mysql://u:" + sqlrig.Canary + "@nosuch.invalid/x": {Status: 69, Stderr: "nosuch.invalid"},
		strings.Replace(raw, "/test", "/nosuch", 1):        {Status: 78, Stderr: "there is no such database"},
		little:                                {Status: 77, Stderr: "denied"},
		sqlrig.With(little, "scheme=session"): {Status: 77, Stderr: "denied"},
	})
}

func TestOpenURL(t *testing.T) {
	t.Parallel()
	database.OpenURL(t)
}

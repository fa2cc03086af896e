package stores

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dlock-go/dlock/driver"
	"github.com/go-sql-driver/mysql"
)

// TestSQLIdentity: all spellings of a store are one, and different stores are not.
func TestSQLIdentity(t *testing.T) {
	for _, variable := range []string{"PGHOST", "PGPORT", "PGDATABASE", "PGUSER", "PGSERVICE"} {
		t.Setenv(variable, "") // what the machine has must not matter
	}
	stores := [][]string{
		{"mysql://h/db", "mysql://H:3306/db", "mariadb://ann:secret@h/db", "mysql://ann@h/db?scheme=row&tls=true", "MYSQL://h:/db?table_prefix=dlock_&timeout=3s"},
		{"mysql://localhost/db", "mysql:///db", "mysql://:3306/db", "mysql://ann:secret@/db"},
		{"mysql://h/other"},
		{"mysql://h:3307/db"},
		{"mysql://h/db?scheme=version"},
		{"mysql://h/db?scheme=session", "mysql://h:3306/db?scheme=session"},
		{"mysql://h/db?scheme=forupdate"},
		{"mysql://h/db?table_prefix=mine_"},
		{"mysql://[::1]/db", "mysql://ann:secret@[::1]:3306/db"},
		{"mysql:///db?socket=/no/such/sock", "mysql://ann:secret@/db?socket=%2Fno%2Fsuch%2Fsock"},
		{"postgres://h/db", "postgresql://H:5432/db", "postgres://ann:secret@h/db?sslmode=disable", "postgres://h/db?scheme=row", "postgres:///db?host=h", "postgres://h/?dbname=db"},
		{"postgres://h/other"},
		{"postgres://h:5433/db", "postgres://h/db?port=5433"},
		{"postgres://h/db?scheme=session"},
		{"postgres://h/db?table_prefix=mine_"},
		{"postgres://[::1]/db", "postgres://ann:secret@[::1]:5432/db"},
		{"postgres://a,b/db", "postgres://b:5432,a/db"},
		{"postgres:///db?host=/no/such/folder", "postgres://ann:secret@%2Fno%2Fsuch%2Ffolder/db"},
	}
	seen := make(map[string]string)
	for _, spellings := range stores {
		first := ""
		for _, raw := range spellings {
			target, err := parseSQL(Split(raw))
			if err != nil {
				t.Fatalf("%s: %v", raw, err)
			}
			identity := target.identity()
			if strings.Contains(identity+target.Shown(), "secret") {
				t.Errorf("%s: the password is in %q or %q", raw, identity, target.Shown())
			}
			if first == "" {
				first = identity
			}
			if identity != first {
				t.Errorf("%s is %q, and %s is %q; want the same", spellings[0], first, raw, identity)
			}
			again, err := parseSQL(Split(target.Shown()))
			if err != nil || again.identity() != first {
				t.Errorf("%s is shown as %s, which is not the same: %v", raw, target.Shown(), err)
			}
		}
		if other, twice := seen[first]; twice {
			t.Errorf("%s and %s are both %q", other, spellings[0], first)
		}
		seen[first] = spellings[0]
	}
}

// Stores that keep no holder recognise a nested dlock by the identity. Two names of one host
// must not wait for each other.
func TestIdentityOfResolvedHosts(t *testing.T) {
	for _, pattern := range []string{"mysql://%s/db?scheme=session", "postgres://%s/db?scheme=forupdate"} {
		want := ""
		for _, host := range []string{"localhost", "127.0.0.1", "[::1]", "127.0.0.2", "LOCALHOST"} {
			server, err := parseSQL(Split(fmt.Sprintf(pattern, host)))
			if err != nil {
				t.Fatal(err)
			}
			server.resolveHosts(t.Context())
			want = cmp.Or(want, server.identity())
			if got := server.identity(); got != want {
				t.Errorf("the identity of %s is %q, that of localhost is %q", host, got, want)
			}
		}
	}
}

// canary is a password that no error may show.
const canary = "Canary7birdSings"

func TestSQLURLsThatCannotBe(t *testing.T) {
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "ca.pem"), []byte("no certificate"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PGDATABASE", "")
	for raw, want := range map[string]struct {
		misconfigured bool // otherwise the URL is wrong
		says          string
	}{
		"mysql:h/db":                                  {false, "write mysql://user:password@host:port/database"},
		"mysql://h":                                   {false, "name of the database is missing"},
		"mysql://h/":                                  {false, "name of the database is missing"},
		"postgres://h":                                {false, "name of the database is missing"},
		"mysql://h/db?scheme=rows":                    {false, "want row, version, forupdate or session"},
		"postgres://h/db?scheme=":                     {false, "want row, version, forupdate or session"},
		"mysql://h/db?table_prefix=a-b":               {false, "letters, digits and _"},
		"postgres://h/db?table_prefix=a%20b":          {false, "letters, digits and _"},
		"mysql://a,b/db":                              {false, "several hosts"},
		"mysql://::1/db":                              {false, "[::1]:port"},
		"mysql://h:port/db":                           {false, "no number"},
		"mysql://h:99999/db":                          {false, "no number"},
		"postgres://h:99999/db":                       {false, "port"},
		"mysql://u:Canary7birdSings?x@h/db":           {false, "%3F in a password"},
		"postgres://u:Canary7birdSings?x@h/db":        {false, "%3F in a password"},
		"mysql://u:100%zCanary7birdSings@h/db":        {false, "%25"},
		"mysql://u:Canary7birdSings@h:/db?x":          {false, "key=value"},
		"mysql://h/db?timeout=soon":                   {false, "duration"},
		"mysql://h/db?tls=nosuch":                     {false, "unknown config name"},
		"mysql://h/db?socket=/s":                      {false, "both a host and a socket"},
		"mysql://h/db?ca=/no/such/file":               {true, "cannot be read"},
		"mysql://h/db?ca=" + folder + "/ca.pem":       {true, "no certificate"},
		"postgres://h/db?sslmode=nosuch":              {false, "sslmode"},
		"postgres://h/db?default_query_exec_mode=x":   {false, "default_query_exec_mode"},
		"postgres://u:Canary7birdSings@h/db?port=abc": {false, "port"},
	} {
		store, err := Open(t.Context(), raw)
		if err == nil {
			store.Close()
			t.Errorf("%s is opened", raw)
			continue
		}
		if errors.Is(err, driver.ErrMisconfigured) != want.misconfigured || isURLError(err) == want.misconfigured || !strings.Contains(err.Error(), want.says) {
			t.Errorf("%s: %v; want %v and %q", raw, err, want.misconfigured, want.says)
		}
		if strings.Contains(err.Error(), "connect_timeout") {
			t.Errorf("%s: the error shows parameters that the URL does not have: %v", raw, err)
		}
		if strings.Contains(err.Error(), canary) {
			t.Errorf("%s: the password is in %v", raw, err)
		}
	}
}

// TestMySQLCertificateIsOfTheHost: with TLS the certificate has to be one of the host in the URL.
func TestMySQLCertificateIsOfTheHost(t *testing.T) {
	target, err := parseSQL(Split("mysql://h/db?tls=true"))
	if err != nil {
		t.Fatal(err)
	}
	config, err := mysql.ParseDSN(target.DSN)
	if err != nil || config.TLS.ServerName != "h" {
		t.Errorf("the certificate has to be of %q, %v; want h", config.TLS.ServerName, err)
	}
}

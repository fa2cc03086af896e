package stores

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/sqldb/sqlurl"
	"github.com/go-sql-driver/mysql"
)

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
	u, err := sqlurl.Parse("mysql://h/db?tls=true")
	if err != nil {
		t.Fatal(err)
	}
	config, err := mysql.ParseDSN(u.DSN)
	if err != nil || config.TLS.ServerName != "h" {
		t.Errorf("the certificate has to be of %q, %v; want h", config.TLS.ServerName, err)
	}
}

package sqlservers_test

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/sqllock"
	"github.com/dlock-go/dlock/sqlsession"
	"github.com/dlock-go/dlock/test/harness/servers"
)

// certificate is the command that makes a key and a certificate in the current folder.
const certificate = "openssl req -x509 -newkey rsa:2048 -nodes -subj /CN=localhost -days 2 -keyout server.key -out server.crt 2>/dev/null"

// TestDiagnoseEncryption: Diagnose asks the server, since a driver may fall back to plaintext.
func TestDiagnoseEncryption(t *testing.T) {
	t.Parallel()
	t.Run("mariadb", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		order := exec.Command("sh", "-c", certificate+"; chmod 755 . ..; chmod 644 *")
		order.Dir = dir
		if out, err := order.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		server := servers.Run(t, servers.MariaDB, "--ssl-cert="+dir+"/server.crt", "--ssl-key="+dir+"/server.key")
		expectEncryption(t, server.URL(), "does not leave this machine")
		expectEncryption(t, server.URL()+"?tls=skip-verify", "is encrypted")
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		server := servers.Run(t, servers.Postgres)
		for _, statement := range []string{ // the server itself makes the files, since it rejects a key of another user
			"COPY (SELECT 1) TO PROGRAM 'cat >/dev/null; umask 077; " + certificate + "'", "ALTER SYSTEM SET ssl = on", "SELECT pg_reload_conf()",
		} {
			if _, err := server.SQL(t.Context(), statement); err != nil {
				t.Fatal(err)
			}
		}
		expectEncryption(t, server.URL(), "does not leave this machine")
		expectEncryption(t, strings.Replace(server.URL(), "sslmode=disable", "sslmode=require", 1), "is encrypted")
	})
}

func expectEncryption(t *testing.T, url, says string) {
	t.Helper()
	row, err := sqllock.Open(t.Context(), url, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer row.Close()
	session, err := sqlsession.Open(t.Context(), url, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer session.Close()
	for _, store := range []driver.Diagnoser{row, session} {
		findings, err := store.Diagnose(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		found := 0
		for _, f := range findings {
			if f.Check == "encryption" {
				found++
				if f.Level != driver.LevelOK || !strings.Contains(f.Message, says) {
					t.Errorf("%s, %T: %+v; want %q", url, store, f, says)
				}
			}
		}
		if found != 1 {
			t.Errorf("%s, %T: %d findings about the encryption: %+v", url, store, found, findings)
		}
	}
}

package sqlurl

import (
	"errors"
	"strings"
	"testing"

	"github.com/dlock-go/dlock/internal/sqldb"
)

func TestDSN(t *testing.T) {
	for raw, want := range map[string]string{
		"sqlite:///a%20b.db":                                           "sqlite " + SQLiteDSN("/a b.db"),
		"mysql://h/db":                                                 "mysql tcp(h:3306)/db?timeout=5s",
		"MariaDB://:p@[::1]:1/d%2Fb?timeout=1s":                        "mysql :p@tcp([::1]:1)/d%2Fb?timeout=1s",
		"mysql://u@/db?socket=/s&loc=a/b":                              "mysql u:@unix(/s)/db?loc=a%2Fb&timeout=5s",
		"postgres://u:p%40@a,b/db?sslmode=x":                           "pgx postgres://u:p%40@a,b/db?sslmode=x&default_query_exec_mode=exec&client_encoding=UTF8&connect_timeout=5",
		"postgresql:///db?default_query_exec_mode=e&connect_timeout=1": "pgx postgres:///db?default_query_exec_mode=e&connect_timeout=1&client_encoding=UTF8",
	} {
		u, err := Parse(raw)
		if err != nil {
			t.Errorf("%s: %v", raw, err)
			continue
		}
		if got := u.Driver + " " + u.DSN; got != want {
			t.Errorf("%s is %q, want %q", raw, got, want)
		}
	}
}

// TestCredentials: what is escaped in a URL comes back as it was.
func TestCredentials(t *testing.T) {
	const odd = `p@ss:/?#[]&= %ü'"\`
	const userAndPassword = "ann:p%40ss%3A%2F%3F%23%5B%5D%26%3D%20%25%C3%BC%27%22%5C"
	for _, kind := range []string{"mysql", "postgres"} {
		u, err := Parse(kind + "://" + userAndPassword + "@h/d%2Fb")
		if err != nil {
			t.Fatal(err)
		}
		if u.User != "ann" || u.Password != odd || u.Database != "d/b" || u.Hosts != "h" {
			t.Errorf("%s: %+v", kind, u)
		}
	}
	plain, err := Parse("mysql://ann:a/b#c:d@h/db") // sloppy, and unmistakable
	if err != nil || plain.Password != "a/b#c:d" || plain.Hosts != "h" {
		t.Errorf("%+v, %v", plain, err)
	}
	u, err := Parse("postgres://an%3An@h/db?scheme=session&table_prefix=mine_")
	if err != nil || u.User != "an:n" || u.Scheme != "session" || u.TablePrefix != "mine_" || u.Dialect != sqldb.Postgres {
		t.Errorf("%+v, %v", u, err)
	}
}

// TestBadURLs: every error says what to write, wraps ErrURL and shows no password.
func TestBadURLs(t *testing.T) {
	for raw, says := range map[string]string{
		"secret":                         "does not begin with sqlite://",
		"redis://u:secret@h":             "does not begin with sqlite://",
		"sqlite://secret":                "three slashes",
		"sqlite:///a?secret":             "takes no parameters",
		"sqlite:///secret%zz":            "%25",
		"sqlite:///secret%00":            "NUL",
		"sqlite:///a/":                   "names a folder",
		"mysql:u:secret@h/db":            "write mysql://user:password@host:port/database",
		"mysql://u:secret@h":             "name of the database",
		"mysql://u%3Av:secret@h/db":      "':'",
		"mysql://u:secret@h/db?socket=/": "both a host and a socket",
		"mysql://u:secret@h/db?ca=/f":    "RegisterTLSConfig",
		"mysql://u:secret@a,b/db":        "several hosts",
		"mysql://u:secret@::1/db":        "[::1]:port",
		"mysql://u:secret":               "name of the database",
		"mysql://u:secret/db":            "no number",
		"mysql://u:se?cret@h/db":         "%3F in a password",
		"mysql://u:secret%zz@h/db":       "%25",
		"postgres://u:secret@h/db?x":     "key=value",
		"postgres://h/db?scheme=rwo":     `unknown scheme "rwo" (want row, version, forupdate or session)`,
		"postgres://h/db?table_prefix=1": "letters, digits and _",
	} {
		_, err := Parse(raw)
		if !errors.Is(err, ErrURL) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v; want ErrURL that says %q", raw, err, says)
		}
		if err != nil && strings.Contains(err.Error(), "cret") {
			t.Errorf("%s: what may be a password is in %v", raw, err)
		}
	}
}

// TestMissingDriver: the error says what to import.
func TestMissingDriver(t *testing.T) {
	for raw, says := range map[string]string{
		"sqlite:///f":     `"sqlite" is not registered: import _ "modernc.org/sqlite"`,
		"mysql://h/db":    `"mysql" is not registered: import _ "github.com/go-sql-driver/mysql"`,
		"postgres://h/db": `"pgx" is not registered: import _ "github.com/jackc/pgx/v5/stdlib"`,
	} {
		u, err := Parse(raw)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := u.Open(t.Context(), 0); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v; want that it says %s", raw, err, says)
		}
	}
}

package stores

import (
	"strings"
	"testing"
)

// TestRedactorCleansWhatDriversSay covers errors that quote a URL in part.
func TestRedactorCleansWhatDriversSay(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ url, text, want string }{
		{"mysql://joe:s3cr3t@db/x", `dial joe:s3cr3t@tcp(db): refused`, `dial joe:xxxxx@tcp(db): refused`},
		{"mysql://joe:s%40cr3t@db/x", `cannot parse "joe:s@cr3t@db"`, `cannot parse "joe:xxxxx@db"`},
		{"redis://joe:ab@db/1", "user joe password ab abort", "user joe password xxxxx abort"},
		{"redis://db/1?protocol=plain", "protocol plain is fine", "protocol plain is fine"},
		{"postgres://db/x?password=pass1234", "password=pass1234", "password=xxxxx"},
		{"zookeeper://zk/locks?timeout=10s&create=true&acl=world", "timeout 10s, true, world", "timeout 10s, true, world"},
		{"zookeeper://zk/locks?timeout=s3cr3t", "timeout s3cr3t", "timeout xxxxx"},
		{"zookeeper://joe:pw?timeout=10s@zk", "pw?timeout=10s", "xxxxx"},
		{"redis://db:6379/1", "dial db:6379", "dial db:6379"},
		{"mysql://joe@db/x", "no right for joe", "no right for joe"},
		{"mariadb://joe@db/x", "no right for joe", "no right for joe"},
	} {
		if got := NewRedactor(c.url).Clean(c.text); got != c.want {
			t.Errorf("%s: %q became %q, expected %q", c.url, c.text, got, c.want)
		}
	}
}

// A number that is no port is a password, and one may come back escaped.
func TestRedactorKnowsNumbersAndEscapes(t *testing.T) {
	for url, said := range map[string]string{
		"postgres://user:1234567":         "dial 1234567 failed",
		"mysql://h/db#p\u00e455w\u00f6rd": "open db%23p%C3%A455w%C3%B6rd",
	} {
		got := NewArgsRedactor([]string{"--store", url}).Clean(said)
		for _, secret := range []string{"1234567", "p%C3%A455w%C3%B6rd", "p\u00e455w\u00f6rd"} {
			if strings.Contains(got, secret) {
				t.Errorf("of %q it showed %q", url, got)
			}
		}
	}
	if got := NewArgsRedactor([]string{"--store", "redis://host:6379/0"}).Clean("dial host:6379"); got != "dial host:6379" {
		t.Errorf("a port was hidden: %q", got)
	}
}

// An SQLite file has no password. Its path may contain '@' and '#'.
func TestPathsOfSQLiteAreNotHidden(t *testing.T) {
	for _, url := range []string{
		"sqlite:///tmp/user@example.com/d/l.db", "sqlite:///tmp/a#b.db", "sqlite:///a:b/c@d.db", "sqlite:///tmp/a%23b%40c.db",
	} {
		if got := NewRedactor(url).Clean(url); got != url {
			t.Errorf("%s became %s", url, got)
		}
		if HasSecret(url) {
			t.Errorf("%s has a secret", url)
		}
	}
	const misplaced = "sqlite:///home/ann:secret7@host/x.db"
	if got := NewRedactor(misplaced).Clean(misplaced); got != "sqlite:///home/ann:xxxxx@host/x.db" {
		t.Errorf("%s became %s", misplaced, got)
	}
}

func TestAddressesOfIPv6AreNotHidden(t *testing.T) {
	for _, url := range []string{"redis://[::1]", "redis://u:secret7@[fe80::1],[::1]:6379/0"} {
		const text = "dial tcp [::1]:6379: connection refused"
		if got := NewRedactor(url).Clean(text); got != text {
			t.Errorf("%s: %q became %q", url, text, got)
		}
	}
}

func TestAddressInParametersIsNotHidden(t *testing.T) {
	const url = "postgres:///postgres?host=127.0.0.1&port=20229&user=postgres&dbname=shop&password=secret7"
	const text = "dial tcp 127.0.0.1:20229: connection refused (postgres, shop)"
	if got := NewRedactor(url).Clean(text); got != text {
		t.Errorf("%q became %q", text, got)
	}
	if got := NewRedactor(url).Clean("password secret7"); got != "password xxxxx" {
		t.Errorf("the password became %q", got)
	}
}

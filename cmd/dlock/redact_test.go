//go:build unix

package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/dlock-go/dlock/cmd/dlock/internal/stores"
	"github.com/dlock-go/dlock/internal/sqldb/sqlurl"
)

// canaryURLs have the canary wherever a password could be, rightly or wrongly.
var canaryURLs = []string{
	"nosuch://user:" + canary + "@host/db",
	"nosuch://" + canary + "@host/db",
	"nosuch://:" + canary + "@host:port/db",
	"nosuch://user:" + canary + "@host:99999999/db",
	"nosuch://user:" + canary + "@[::1/db",
	"nosuch://user:%zz" + canary + "@host",
	"nosuch://user:a%20" + canary + "%@host",
	"nosuch://user:p@ss/" + canary + "?x#y@host/db",
	"nosuch://user:" + canary + "@h1:1,user2:" + canary + "@h2:2/db",
	"nosuch://user:" + canary,
	"nosuch://host/db?password=" + canary,
	"nosuch://host/db?" + canary,
	"nosuch://host/db?a=b;password=" + canary + "&c=d",
	"nosuch://host/db#" + canary,
	"nosuch:/user:" + canary + "@host",
	"nosuch:user:" + canary + "@host",
	"user:" + canary + "@host",
	canary + "@host",
	"://user:" + canary + "@host",
	" nosuch://user:" + canary + "@host",
	"nosuch://user:with space " + canary + "@host",
	"\tnosuch://user:" + canary + "@host",
	"nosuch://user:\x1b" + canary + "\x00@host",
	"nosuch://user:\"" + canary + "\\\"@host",
	"sqlite://user:" + canary + "@host/x.db",
	"sqlite:///user:" + canary + "@host/x.db",
	"sqlite:///no/such/folder/x.db?password=" + canary,
	"sqlite:///no/such/folder/user:" + canary + "@x.db",
	"sqlite://./no/user:%43anary7birdSings@host/x.db",
	"sqlite:user:" + canary + "@host",
	"mysql://user:" + canary + "@127.0.0.1:1/db",
	"mysql://user:" + canary + "@127.0.0.1:1/db?scheme=nosuch",
	"mysql://user:p?" + canary + "@127.0.0.1:1/db",
	"mysql://user:" + canary + "@/db?socket=/no/such/" + canary,
	"mysql://127.0.0.1:1/db?password=" + canary,
	"postgres://user:" + canary + "@127.0.0.1:1/db",
	"postgres://user:" + canary + "@127.0.0.1:port/db",
	"postgres://user:" + canary + "@127.0.0.1:1/db?sslmode=nosuch",
	"postgres://127.0.0.1:1/db?password=" + canary + "&port=x",
}

// redactionCases are command lines with URL in all kinds of places.
func redactionCases(url string) [][]string {
	return [][]string{
		{"--store", url, "ls"},
		{"ls", "--store=" + url},
		{"exec", "--store", url, "-v", "name", "--", "true"},
		{"doctor", "--store", url},
		{"show", "name", "--store", url, "--json"},
		{"break", "name", "--token", "1", "--store", url},
		{"--store", url, "no-such-command"},
		{"-store", url, "ls"},
		{"exec", "--ttl", url, "name", "--", "true"},
		{"exec", "-E", url, "name", "--", "true"},
		{"break", "name", "--token", url},
		{"ls", "--json=" + url},
		{url},
		{"--store", url, "exec", "-n", "-w", "1s", "name", "--", "true"},
	}
}

// misplacedCases are command lines where the URL stands in the wrong place.
// Only what looks like a URL can be recognised there.
func misplacedCases(url string) [][]string {
	return [][]string{
		{url},
		{"help", url},
		{"ls", "--stor=" + url},
		{"exec", "--ttl", url, "name", "--", "true"},
		{"exec", "-E", url, "name", "--", "true"},
		{"break", "name", "--token", url},
		{"exec", "name", "--", url},
		{"__complete", "--store", url, "show", ""},
	}
}

// outputOf runs a whole command line in this process.
func outputOf(t *testing.T, args []string) string {
	t.Helper()
	file, err := os.CreateTemp(t.TempDir(), "output")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	run(t.Context(), args, nil, file, file)
	text, err := os.ReadFile(file.Name())
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestNoPasswordIsShown(t *testing.T) {
	b := newBench(t)
	for _, url := range canaryURLs {
		cases := redactionCases(url)
		if strings.Contains(url, "@") && !strings.ContainsAny(url, " \t\n") {
			cases = append(cases, misplacedCases(url)...)
		}
		for _, args := range cases {
			if text := outputOf(t, args); strings.Contains(text, canary) {
				t.Errorf("dlock %q shows the password:\n%s", args, text)
			}
		}
		if strings.Contains(url, "\x00") {
			continue // no environment can have it
		}
		env := b.env
		for _, variable := range []string{storeVariable, storeFileVariable} {
			b.env = slices.Concat(env[:4], []string{variable + "=" + url})
			for _, args := range [][]string{{"ls"}, {"doctor"}} {
				if r := b.dlock(args...); strings.Contains(r.stdout+r.stderr, canary) {
					t.Errorf("%s=%q dlock %q shows the password:\n%s%s", variable, url, args, r.stdout, r.stderr)
				}
			}
		}
		b.env = env
	}
}

// canBeCreated reports whether opening the URL could create a database file.
func canBeCreated(url string) bool {
	parsed, err := sqlurl.Parse(url)
	if err != nil || parsed.Path == "" {
		return false
	}
	_, err = os.Stat(filepath.Dir(parsed.Path))
	return err == nil
}

// FuzzRedact puts the canary between two arbitrary texts into a place where a
// password could be, and runs whole commands with that as the store.
func FuzzRedact(f *testing.F) {
	for _, url := range canaryURLs {
		before, after, found := strings.Cut(url, canary)
		if found && strings.Contains(after, "@") {
			f.Add(before, after)
		}
	}
	f.Add("sqlite:///%", "%@%")
	f.Add("a://b:\"", "'`\\@[")
	f.Fuzz(func(t *testing.T, before, after string) {
		// What may come before and after is anything that leaves the canary a
		// part of the user's name and password, or of the query.
		touches := func(c byte) bool { return c >= 0x80 || unicode.IsLetter(rune(c)) || unicode.IsDigit(rune(c)) }
		if before != "" && touches(before[len(before)-1]) || after != "" && touches(after[0]) {
			return // it would be another word
		}
		urls := []string{before + canary + after + "@host", before + "?password=" + canary + after}
		for _, url := range urls {
			if path, found := strings.CutPrefix(url, "sqlite:"); found && !strings.Contains(path, ":") {
				continue // the path of a file has no password
			}
			if canBeCreated(url) {
				continue // a test must not leave files wherever a URL points
			}
			for _, args := range redactionCases(url) {
				if text := outputOf(t, args); strings.Contains(text, canary) {
					t.Fatalf("dlock %q shows the password:\n%s", args, text)
				}
			}
		}
	})
}

// What is no secret is shown as it is, whatever the URL and the name look like.
func TestTextsAreNotCut(t *testing.T) {
	b := newBench(t)
	for _, name := range []string{"my dlock: a", "redislock: b", "dlock: c"} {
		b.holder(name)
		r := b.must(exitNotAcquired, "exec", "-n", name, "--", "true")
		contains(t, "stderr", r.stderr, `dlock: "`+name+`" is held by sh (pid `)
	}
	for _, c := range []struct{ url, says string }{
		{"postgres://127.0.0.1:1/dlock", "cannot use postgres://127.0.0.1:1/dlock: store unreachable: "},
		{"postgres://127.0.0.1:1/db?bogus=1", "127.0.0.1:1/db"},
		{"postgres://joe:1@127.0.0.1:1/db", "127.0.0.1:1/db"},
		{"mysql://127.0.0.1:1/quorum: x", "127.0.0.1:1/quorum:%20x"},
	} {
		r := b.must(exitUnavailable, "--store", c.url, "ls")
		contains(t, "stderr for "+c.url, r.stderr, c.says)
		if strings.Contains(r.stderr, stores.Redacted) {
			t.Errorf("%s has no secret that an error could show: %s", c.url, r.stderr)
		}
	}
}

// A user without a password, and the name of the program, are no secrets.
func TestUserNamesAreNotHidden(t *testing.T) {
	b := newBench(t)
	for url, want := range map[string]string{
		"postgres://postgres@127.0.0.1:1/dlock":    "cannot use postgres://127.0.0.1:1/dlock",
		"mysql://root:dlock@127.0.0.1:1/dlock":     "dlock: ",
		"postgres://app:secret42@127.0.0.1:1/shop": "127.0.0.1:1/shop",
	} {
		r := b.dlock("ls", "--store", url)
		if !strings.Contains(r.stderr, want) || strings.Contains(r.stderr, "secret42") {
			t.Errorf("ls --store %s says %q; want %q in it", url, r.stderr, want)
		}
	}
}

// A password that is an ordinary word hides neither the names of locks nor the store.
func TestPasswordThatIsAnOrdinaryWord(t *testing.T) {
	b := newBench(t)
	b.holder("lock-a", "--note", "a lock note")
	r := b.must(exitNotAcquired, "exec", "-n", "--note", "redis://u:lock@h", "lock-a", "--", "true")
	contains(t, "stderr", r.stderr, "dlock: lock-a is held by sh (pid ", `: "a lock note"`)
	r = b.must(exitUnavailable, "--store", "mysql://dlock:dlock@127.0.0.1:1/dlock", "ls")
	contains(t, "stderr", r.stderr, "dlock: cannot use mysql://127.0.0.1:1/dlock: ")
	r = b.must(exitUsage, "--store", "redis://127.0.0.1:bad", "ls")
	contains(t, "stderr", r.stderr, "dlock: bad URL: ")
	r = b.must(exitUsage, "--store", "redis:/u:sekrit@h", "ls")
	contains(t, "stderr", r.stderr, "it does not begin with redis://")
}

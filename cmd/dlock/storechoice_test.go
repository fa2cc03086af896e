//go:build unix

package main

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// DLOCK_STORE=$UNSET on ten machines must not be ten locks.
func TestEmptyStoreVariableIsRefused(t *testing.T) {
	b := newBench(t)
	b.env = append(b.env[:4:4], storeVariable+"=")
	for _, args := range [][]string{{"exec", "job", "--", "echo", "no"}, {"hold", "job"}, {"ls"}, {"doctor"}} {
		r := b.must(exitUsage, args...)
		contains(t, "stderr", r.stderr, "$DLOCK_STORE is empty")
		if r.stdout != "" {
			t.Errorf("dlock %q printed %q", args, r.stdout)
		}
	}
	b.env = append(b.env[:4:4], storeFileVariable+"=")
	contains(t, "stderr", b.must(exitUsage, "ls").stderr, "$DLOCK_STORE_FILE is empty")
	b.env = append(b.env[:4:4], storeVariable+"=sqlite://./a.db", storeFileVariable+"=x")
	contains(t, "stderr", b.must(exitUsage, "ls").stderr, "are both set")
}

// A relative folder would be another one for every current folder.
func TestRelativeStateFolderIsRefused(t *testing.T) {
	b := newBench(t)
	b.env = []string{b.env[0], "HOME=relative"}
	contains(t, "stderr", b.must(exitUsage, "ls").stderr, `$HOME is "relative", which is not an absolute path`)
	b.env = []string{b.env[0], "HOME=" + b.folder, "XDG_STATE_HOME=./state"}
	contains(t, "stderr", b.must(exitUsage, "ls").stderr, `$XDG_STATE_HOME is "./state", which is not an absolute path`)
	b.env = []string{b.env[0]}
	contains(t, "stderr", b.must(exitUsage, "ls").stderr, "there is no home folder", "use --store")
	if _, err := os.Stat(b.path("state")); err == nil {
		t.Error("the folder was made all the same")
	}
}

func TestStoreIsSaid(t *testing.T) {
	b := newBench(t)
	r := b.must(0, "exec", "-v", "job", "--", "true")
	contains(t, "stderr", r.stderr, "dlock: the store is sqlite://"+b.folder+"/locks.db\n")
	if r := b.must(0, "exec", "job", "--", "true"); r.stderr != "" {
		t.Errorf("without -v and a terminal it said %q", r.stderr)
	}
}

func TestStoreFile(t *testing.T) {
	b := newBench(t)
	write := func(text string) {
		if err := os.WriteFile(b.path("url"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("sqlite://" + b.folder + "/filed.db\n")
	b.must(0, "--store-file", "url", "exec", "job", "--", "sh", "-c", `dlock --store sqlite://./filed.db show job`)
	b.must(0, "exec", "--store-file=./url", "job", "--", "sh", "-c", "cd / && dlock show job") // nested, from elsewhere

	env := b.env
	b.env = append(b.env[:4:4], storeFileVariable+"=url")
	b.must(0, "exec", "job", "--", "sh", "-c", "cd / && dlock show job")
	b.env = env

	for says, args := range map[string][]string{
		"exclude each other": {"--store", "sqlite://./a.db", "--store-file", "url", "ls"},
		"no such file":       {"--store-file", "nowhere", "ls"},
		"is empty":           {"--store-file", "", "ls"},
	} {
		contains(t, "stderr", b.must(exitUsage, args...).stderr, says)
	}
	for _, text := range []string{"", "\n", "sqlite://./a.db\nsqlite://./b.db\n"} {
		write(text)
		contains(t, "stderr", b.must(exitUsage, "--store-file", "url", "ls").stderr, "does not contain one store URL")
	}
	for _, url := range canaryURLs {
		write(url)
		for _, args := range [][]string{{"--store-file", "url", "ls"}, {"--store-file", "url", "doctor"}} {
			if text := outputOf(t, slices.Concat([]string{"--store-file", b.path("url")}, args[2:])); strings.Contains(text, canary) {
				t.Errorf("%q: dlock %q shows the password:\n%s", url, args, text)
			}
		}
	}
}

// A dlock inside of a dlock exec uses the same store.
func TestNestedExecUsesTheSameStore(t *testing.T) {
	b := newBench(t)
	b.env = append(b.env, "XDG_STATE_HOME="+b.path("state"))
	r := b.must(0, "exec", "--store", "sqlite://./given.db", "job", "--", "sh", "-c", "cd /; dlock show job; env")
	contains(t, "stdout", r.stdout, "name       job", "DLOCK_STORE=sqlite://"+b.folder+"/given.db\n")
	if n := strings.Count(r.stdout, "DLOCK_STORE"); n != 1 {
		t.Errorf("%d variables name a store:\n%s", n, r.stdout)
	}
	b.must(0, "exec", "job", "--", "dlock", "show", "job") // of the environment
	env := b.env
	if err := os.WriteFile(b.path("relative"), []byte("sqlite://./filed.db"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, variable := range []string{storeVariable + "=sqlite://./given.db", storeFileVariable + "=relative"} {
		b.env = slices.Concat(env[:4], []string{variable})
		b.must(0, "exec", "job", "--", "sh", "-c", "cd / && dlock show job")
	}
	b.env = env
	b.env = slices.DeleteFunc(b.env, func(entry string) bool { return strings.HasPrefix(entry, storeVariable) })
	r = b.must(0, "exec", "job", "--", "sh", "-c", "HOME=/; XDG_STATE_HOME=/tmp; export HOME XDG_STATE_HOME; dlock show job; env") // the default
	contains(t, "stdout", r.stdout, "name       job", "DLOCK_STORE=sqlite://"+b.path("state")+"/dlock/dlock.db\n")
}

// A password of the command line does not get into the environment of the command.
func TestNoPasswordIsHandedOn(t *testing.T) {
	b := newBench(t)
	for url, display := range map[string]string{
		"redis://joe:" + canary + "@h:1/2":           "redis://h:1/2",
		"redis://h:1/2?sentinel_password=" + canary:  "redis://h:1/2",
		"mysql://joe:" + canary + "@h/db":            "mysql://h/db",
		"postgres://h/db?password=" + canary:         "postgres://h/db",
		"postgres://h/db?passfile=" + canary:         "postgres://h/db",
		"etcd://joe:" + canary + "@h/prefix":         "etcd://h/prefix",
		"zookeeper://joe:" + canary + "@h/locks":     "zookeeper://h/locks",
		"redis+sentinel://:" + canary + "@a,b/main":  "redis+sentinel://a,b/main",
		"redlock://:" + canary + "@a,b,c":            "redlock://a,b,c",
		"redis://joe:pw@h/1?timeout=" + canary + "x": "redis://h/1",
	} {
		choice := storeChoice{url: url, flag: true}
		env := choice.handOn([]string{"A=b", storeVariable + "=old", storeFileVariable + "=old"}, display)
		if want := []string{"A=b", storeVariable + "=withheld:" + display}; !slices.Equal(env, want) {
			t.Errorf("%s: the environment is %q, want %q", url, env, want)
		}
	}
	for _, url := range []string{
		"redis://h:6379/0?protocol=plain&replicas=1", "redis://joe@h/1", "postgres://h/db?sslmode=disable&connect_timeout=3", "etcd://a,b/p?tls=true&ca=/etc/ca.pem",
	} {
		choice := storeChoice{url: url, flag: true}
		if env := choice.handOn(nil, "x"); !slices.Equal(env, []string{storeVariable + "=" + url}) {
			t.Errorf("%s has no secret, but the environment is %q", url, env)
		}
	}
	b.env = append(b.env[:4:4], storeVariable+"=withheld:redis://h:1/2")
	r := b.must(exitUsage, "ls")
	contains(t, "stderr", r.stderr, "was given redis://h:1/2 with a password on its command line, which is not handed on", "--store-file")
}

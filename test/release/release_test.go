package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

const repository = "../.."

// TestRelease makes two releases in a clone, serves them as a module proxy, and uses them as a
// stranger would, without the internet.
func TestRelease(t *testing.T) {
	clone := cloneRepository(t)
	first, second := "v0.1.0", "v0.1.1"
	checkRefusals(t, clone, first)
	checkDryRun(t, clone, first)

	work := t.TempDir()
	user := &installer{proxy: filepath.Join(work, "proxy"), folder: filepath.Join(work, "user"), env: []string{"GOSUMDB=off"}, flags: []string{"-ldflags=-s -w"}}
	for _, version := range []string{first, second} {
		release(t, clone, version)
		if err := writeProxy(clone, user.proxy, version); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(user.folder, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Run("tags", func(t *testing.T) { checkTags(t, clone, first, user) })
	t.Run("module of a user", func(t *testing.T) { checkModule(t, user, first, second) })
	t.Run("examples", func(t *testing.T) { checkExamples(t, user, first) })
	t.Run("command", func(t *testing.T) { checkCommand(t, clone, user, first) })
}

// cloneRepository copies the files here into a repository of its own. They need not be in one: people
// download archives.
func cloneRepository(t *testing.T) string {
	t.Helper()
	for name, value := range map[string]string{
		"GIT_CONFIG_GLOBAL": os.DevNull, "GIT_CONFIG_SYSTEM": os.DevNull,
		"GIT_AUTHOR_NAME": "test", "GIT_AUTHOR_EMAIL": "test@example.com",
		"GIT_COMMITTER_NAME": "test", "GIT_COMMITTER_EMAIL": "test@example.com",
	} {
		t.Setenv(name, value)
	}
	clone := t.TempDir()
	err := filepath.WalkDir(repository, func(from string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(repository, from)
		switch {
		case err != nil:
			return err
		case slices.Contains([]string{".git", ".cache", "bin", "dist"}, name): // .gitignore names the rest
			if entry.IsDir() {
				return fs.SkipDir
			}
			return nil
		case entry.IsDir():
			return os.MkdirAll(filepath.Join(clone, name), 0o755)
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		text, err := os.ReadFile(from)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(clone, name), text, info.Mode().Perm())
	})
	if err != nil {
		t.Fatal(err)
	}
	must(t, clone, "init", "--quiet", "--initial-branch=main")
	must(t, clone, "add", "--all")
	must(t, clone, "commit", "--quiet", "--message=all")
	return clone
}

func must(t *testing.T, folder string, args ...string) string {
	t.Helper()
	output, err := git(folder, args...)
	if err != nil {
		t.Fatal(err)
	}
	return output
}

// checkRefusals: nothing is released from a tree that is not clean, that fails its tests, or with
// a version that the go command would not accept.
func checkRefusals(t *testing.T, clone, version string) {
	t.Helper()
	before := must(t, clone, "rev-parse", "HEAD")
	refused := func(want string, r *releaser) {
		t.Helper()
		r.root, r.log = clone, io.Discard
		err := r.prepare()
		if err == nil {
			err = r.release()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s was released: %v; want %q", r.version, err, want)
		}
	}
	refused("is not of the form", &releaser{version: "0.1.0"})
	refused("is not of the form", &releaser{version: "v0.1"})
	refused("have to end in /v2", &releaser{version: "v2.0.0"})
	refused(`the check "false" failed`, &releaser{version: version, check: "false"})
	stray := filepath.Join(clone, "stray.txt")
	if err := os.WriteFile(stray, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	refused("the tree is not clean", &releaser{version: version, check: "true"})
	if err := os.Remove(stray); err != nil {
		t.Fatal(err)
	}
	must(t, clone, "tag", "redislock/"+version)
	refused("there is a tag redislock/", &releaser{version: version, check: "true"})
	must(t, clone, "tag", "--delete", "redislock/"+version)

	// A release that fails late leaves nothing behind.
	must(t, clone, "config", "user.useConfigOnly", "true")
	hook := filepath.Join(clone, ".git", "hooks", "commit-msg")
	if err := os.MkdirAll(filepath.Dir(hook), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(hook, []byte("#!/bin/sh\n! grep -q 'back to replacements' \"$1\"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	refused("git commit", &releaser{version: version, check: "true"})
	if err := os.Remove(hook); err != nil {
		t.Fatal(err)
	}
	checkUnchanged(t, clone, before)
}

func checkUnchanged(t *testing.T, clone, commit string) {
	t.Helper()
	if now := must(t, clone, "rev-parse", "HEAD"); now != commit {
		t.Errorf("HEAD moved from %s to %s", commit, now)
	}
	if changes := must(t, clone, "status", "--porcelain") + must(t, clone, "tag", "--list"); changes != "" {
		t.Errorf("there are changes or tags:\n%s", changes)
	}
}

// checkDryRun: without --do the command says what it would do, and does nothing.
func checkDryRun(t *testing.T, clone, version string) {
	t.Helper()
	before := must(t, clone, "rev-parse", "HEAD")
	var said bytes.Buffer
	r := &releaser{root: clone, version: version, check: "false", log: &said}
	if err := r.prepare(); err != nil {
		t.Fatal(err)
	}
	r.plan()
	for _, want := range []string{
		"which was not done", "run false", "the section 0.1.0", "redislock/go.mod requires github.com/dlock-go/dlock v0.1.0",
		"tag it as v0.1.0", "tag it as redislock/v0.1.0", "tag it as cmd/dlock/v0.1.0", "nothing is pushed",
	} {
		if !strings.Contains(said.String(), want) {
			t.Errorf("the plan does not say %q:\n%s", want, said.String())
		}
	}
	checkUnchanged(t, clone, before)
}

// release releases a version. Afterwards the tree is the one before, with a new section in
// CHANGELOG.md.
func release(t *testing.T, clone, version string) {
	t.Helper()
	changelog := filepath.Join(clone, "CHANGELOG.md")
	text, err := os.ReadFile(changelog)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(strings.SplitAfter(string(text), unreleased)[1], "\n- ") || version != "v0.1.0" {
		text = []byte(strings.Replace(string(text), unreleased, unreleased+"\n- A change.\n", 1))
		if err := os.WriteFile(changelog, text, 0o644); err != nil {
			t.Fatal(err)
		}
		must(t, clone, "commit", "--quiet", "--all", "--message=a change")
	}
	before := must(t, clone, "rev-parse", "HEAD")
	r := &releaser{root: clone, version: version, check: "true", log: io.Discard}
	if err := r.prepare(); err != nil {
		t.Fatal(err)
	}
	if err := r.release(); err != nil {
		t.Fatal(err)
	}
	if changed := must(t, clone, "diff", "--name-only", before, "HEAD"); changed != "CHANGELOG.md" {
		t.Errorf("after the release these files are not as before:\n%s", changed)
	}
	if after, err := os.ReadFile(changelog); err != nil || !strings.Contains(string(after), unreleased+"\n## ["+version[1:]+"] - 20") {
		t.Errorf("CHANGELOG.md has no section for %s after an empty one for what is not released: %v", version, err)
	}
}

// checkTags: at its tag no module has a replacement, and its go.mod and go.sum are tidy.
func checkTags(t *testing.T, clone, version string, user *installer) {
	modules, err := readModules(clone)
	if err != nil {
		t.Fatal(err)
	}
	if len(modules) < 8 {
		t.Errorf("go.work names %d modules; want all eight", len(modules))
	}
	at := filepath.Join(t.TempDir(), "tag")
	must(t, clone, "worktree", "add", "--quiet", "--detach", at, "cmd/dlock/"+version)
	for _, m := range modules {
		if goMod := must(t, clone, "show", m.tag(version)+":"+filepath.ToSlash(filepath.Join(m.folder, "go.mod"))); strings.Contains(goMod, "replace ") {
			t.Errorf("%s has replacements:\n%s", m.tag(version), goMod)
		}
		if output, err := user.run(filepath.Join(at, m.folder), "mod", "tidy", "-diff"); err != nil {
			t.Errorf("%s is not tidy: %v\n%s", m.tag(version), err, output)
		}
	}
}

// checkModule: a module of a user that requires redislock builds, and has no other store's client
// in its go.sum. It does not build with two versions of dlock's modules.
func checkModule(t *testing.T, user *installer, first, second string) {
	const program = `package main

import (
	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/redislock"
	"github.com/redis/go-redis/v9"
)

func main() {
	store, err := redislock.New(redis.NewClient(&redis.Options{}), nil)
	if err != nil {
		panic(err)
	}
	_ = dlock.New(store, nil)
}
`
	folder := t.TempDir()
	run := func(args ...string) {
		t.Helper()
		if _, err := user.run(folder, args...); err != nil {
			t.Fatal(err)
		}
	}
	run("mod", "init", "example.com/shop")
	run("get", "github.com/dlock-go/dlock/redislock@"+first)
	if err := os.WriteFile(filepath.Join(folder, "main.go"), []byte(program), 0o644); err != nil {
		t.Fatal(err)
	}
	run("build", "-mod=mod", "-o", os.DevNull, ".")
	sum, err := os.ReadFile(filepath.Join(folder, "go.sum"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(sum), "github.com/dlock-go/dlock "+first+" h1:") {
		t.Errorf("go.sum does not name dlock %s:\n%s", first, sum)
	}
	for _, stranger := range []string{"etcd", "zookeeper", "grpc", "sqlite", "mysql", "jackc", "memcache"} {
		if strings.Contains(string(sum), stranger) {
			t.Errorf("go.sum of a user of redislock contains %s:\n%s", stranger, sum)
		}
	}

	run("get", "github.com/dlock-go/dlock@"+second)
	output, err := user.run(folder, "build", "-mod=mod", "-o", os.DevNull, ".")
	if want := "undefined: lockstep.OneVersionOfAllModulesV0Dot1Dot0"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("dlock %s and redislock %s were built together: %v; want %q\n%s", second, first, err, want, output)
	}
	run("get", "github.com/dlock-go/dlock/redislock@"+second)
	run("build", "-mod=mod", "-o", os.DevNull, ".")
}

// checkExamples: the examples can be installed, and the first one runs.
func checkExamples(t *testing.T, user *installer, version string) {
	for _, name := range []string{"hello", "charge"} {
		program, err := user.install("github.com/dlock-go/dlock/examples/"+name, version, runtime.GOOS, runtime.GOARCH)
		if err != nil {
			t.Fatal(err)
		}
		if name != "hello" {
			continue
		}
		cmd := exec.CommandContext(t.Context(), program)
		cmd.Dir = t.TempDir()
		if output, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(output), "charging order 42") {
			t.Errorf("hello: %v\n%s", err, output)
		}
	}
}

// checkCommand: the command knows its version and its commit, and two builds in different folders
// have the same bytes.
func checkCommand(t *testing.T, clone string, user *installer, version string) {
	other := *user
	other.folder = filepath.Join(t.TempDir(), "another", "folder")
	var sums [2][sha256.Size]byte
	for i, installer := range []*installer{user, &other} {
		program, err := installer.install(commandPackage, version, runtime.GOOS, runtime.GOARCH)
		if err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(program)
		if err != nil {
			t.Fatal(err)
		}
		sums[i] = sha256.Sum256(text)
		if i > 0 {
			continue
		}
		output, err := exec.CommandContext(t.Context(), program, "version", "--json").Output()
		var said struct{ Version, Commit string }
		if err == nil {
			err = json.Unmarshal(output, &said)
		}
		if want := must(t, clone, "rev-parse", version+"^{commit}"); err != nil || said.Version != version || said.Commit != want {
			t.Errorf("dlock version says %s: %v; want %s and %s", output, err, version, want)
		}
		checkBOM(t, program, version)
	}
	if sums[0] != sums[1] {
		t.Errorf("two builds have the hashes %x and %x", sums[0], sums[1])
	}
}

// checkBOM: the list of what is in the program names it, its modules and Go.
func checkBOM(t *testing.T, program, version string) {
	text, err := describe(program)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`"bomFormat": "CycloneDX"`, `"pkg:golang/` + commandPackage + "@" + version + `"`,
		`"pkg:golang/github.com/dlock-go/dlock/etcdlock@` + version + `"`, `"pkg:golang/std@`, `"go:sum:h1"`,
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("the list of what is in the program does not contain %s", want)
		}
	}
}

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// storeTags are the build tags that leave stores out of the command.
var storeTags = []string{"nosqlite", "nomysql", "nopostgres", "noredis", "noetcd", "nozookeeper", "nomemcached"}

func goIn(t *testing.T, folder string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir = filepath.Join(repository, folder)
	cmd.Env = append(cmd.Environ(), "GOWORK=off")
	if output, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, output)
	}
}

// TestEachStoreCanBeLeftOut compiles what opens stores with each tag alone, and with the tag that leaves
// out all but one.
func TestEachStoreCanBeLeftOut(t *testing.T) {
	for _, tag := range append(storeTags, "onlysqlite") {
		goIn(t, commandFolder, "build", "-tags", tag, "./internal/stores")
	}
}

// TestCommandWithOneStore builds the command with one store, and checks what it says of the others.
func TestCommandWithOneStore(t *testing.T) {
	const usage = 64
	folder := t.TempDir()
	program := filepath.Join(folder, "dlock")
	goIn(t, commandFolder, "build", "-tags", strings.Join(storeTags[:len(storeTags)-1], ","), "-o", program, ".") // memcached stays
	run := func(args ...string) (string, int) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), program, args...)
		cmd.Env = []string{"HOME=" + folder, "PATH=" + os.Getenv("PATH")}
		output, err := cmd.CombinedOutput()
		if cmd.ProcessState == nil {
			t.Fatal(err)
		}
		return string(output), cmd.ProcessState.ExitCode()
	}
	for want, args := range map[string][]string{
		"sqlite is not in this build":   {"exec", "a", "--", "true"},
		"redis is not in this build":    {"--store", "redis://h", "ls"},
		"redlock is not in this build":  {"--store", "redlock://a,b,c", "ls"},
		"postgres is not in this build": {"--store", "postgres://h/db", "ls"},
		"unknown kind of store":         {"--store", "nosuch://h", "ls"},
	} {
		if output, status := run(args...); status != usage || !strings.Contains(output, want) {
			t.Errorf("%q: status %d and %q; want %d and %q", args, status, output, usage, want)
		}
	}
	if output, status := run("--help"); status != 0 || !strings.Contains(output, "memcached://host:port") || strings.Contains(output, "redis://") {
		t.Errorf("--help: status %d; want memcached as the only store:\n%s", status, output)
	}
}

package main

import (
	"os"
	"syscall"
	"testing"
)

// TestStopSignalFreesTheLockWhenTheGroupHasEnded: the shell of a script ends at once, but the program that
// it runs may take longer.
func TestStopSignalFreesTheLockWhenTheGroupHasEnded(t *testing.T) {
	b := newBench(t)
	done := b.path("done")
	p := b.start("exec", "--ttl", "100s", "--grace", "30s", "job", "--", "sh", "-c",
		`sh -c 'trap "echo ending; until [ -e \"$0\" ]; do sleep 0.05; done; echo ended; exit" TERM; echo ready; while :; do sleep 0.05; done' "$0"; true`, done)
	if line := p.line(); line != "ready" {
		t.Fatalf("got %q", line)
	}
	p.signal(syscall.SIGTERM)
	if line := p.line(); line != "ending" {
		t.Fatalf("got %q", line)
	}
	b.must(75, "exec", "-n", "job", "--", "true")
	if err := os.WriteFile(done, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if line := p.line(); line != "ended" {
		t.Errorf("got %q", line)
	}
	p.expect(128 + int(syscall.SIGTERM))
	b.must(0, "exec", "-n", "job", "--", "true")
}

// What ignores the signal keeps the lock for no longer than the grace.
func TestStopSignalWaitsForTheGrace(t *testing.T) {
	b := newBench(t)
	p := b.start("exec", "--grace", "300ms", "job", "--", "sh", "-c", `sh -c 'trap "" TERM; echo $$; sleep 1000 & wait'; true`)
	pid := p.pid()
	p.signal(syscall.SIGTERM)
	p.expect(128 + int(syscall.SIGTERM))
	if !alive(pid) {
		t.Error("the process that ignores TERM has ended")
	}
	group, err := syscall.Getpgid(pid)
	if err != nil {
		t.Fatal(err)
	}
	_ = syscall.Kill(-group, syscall.SIGKILL)
}

//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/dlock-go/dlock/lab/soak"
	"github.com/dlock-go/dlock/test/harness/checkout"
)

// mistake is a mutant of test/mutants, and the soak that finds it.
type mistake struct {
	rule   string // as in the tables of test/mutants
	store  string
	faults string // the faults that bring the mistake to light; "none" if it needs none
}

// mistakes are the mutants that a soak must find.
var mistakes = []mistake{
	{"a context checks the clock before it says that the lock is held", "sqlite", "pause"},
	{"trust counts from when the attempt was sent, not from its answer", "redis", "cut replies,delay"},
	{"the margin is taken off the trust", "sqlite", "none"},
	{"every lease of a grant has a token of its own", "sqlite", "none"},
	{"a lock is shared and handed over in one mode only", "sqlite", "none"},
	{"every grant has a larger token (SQLite)", "sqlite", "none"},
	{"no more holders than permits", "sqlite", "kill"},
	{"the waiter at the head of the queue is woken", "sqlite", "none"},
	{"a release of a plain lock releases no other owner's", "redis-plain", "cut,cut replies"},
	{"a release by owner releases no other owner's lock", "redis", "cut,cut replies,reorder"},
	{"shared holders exclude exclusive ones", "redis", "none"},
	{"AcquireAll checks every name before it takes one", "redis-plain", "none"},
}

const (
	spoiledTime  = 50 * time.Second       // of a soak, which must find the mistake within a minute
	spoiledEvery = 300 * time.Millisecond // the longest time between two faults of a process
)

// soakSpoiled makes each mistake in a copy of dlock, and soaks the copy.
func soakSpoiled(ctx context.Context, only string, seed uint64) error {
	folder, err := os.MkdirTemp("", "dlock-spoiled-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(folder) }() // a temporary folder: a failure does not matter
	tried, missed := 0, 0
	for _, m := range mistakes {
		if !strings.Contains(m.rule, only) {
			continue
		}
		program, err := m.build(ctx, folder)
		if err != nil {
			return fmt.Errorf("building the mistake %q: %w", m.rule, err)
		}
		began := time.Now()
		found, err := m.find(ctx, program, seed)
		if err != nil {
			return fmt.Errorf("soaking the mistake %q: %w", m.rule, err)
		}
		tried++
		mark := "found"
		if found == "" {
			mark, found = "MISSED", fmt.Sprintf("nothing was found in %v", spoiledTime)
			missed++
		}
		fmt.Fprintf(os.Stderr, "%-6s %5.1fs %-12s without %q: %s\n", mark, time.Since(began).Seconds(), m.store, m.rule, found)
	}
	if tried == 0 {
		return usagef("no mistake has a rule that contains %q", only)
	}
	if missed > 0 {
		return fmt.Errorf("%d of %d mistakes were not found", missed, tried)
	}
	return nil
}

// build builds this program over a dlock with the mistake.
func (m mistake) build(ctx context.Context, folder string) (string, error) {
	root, err := checkout.Folder(".")
	if err != nil {
		return "", err
	}
	overlay, program := filepath.Join(folder, "overlay"), filepath.Join(folder, "lab")
	for _, args := range [][]string{
		{"run", "./test/mutants", "--only", m.rule, "--overlay", overlay},
		{"build", "-buildvcs=false", "-overlay", overlay, "-o", program, "./lab"},
	} {
		cmd := exec.CommandContext(ctx, "go", args...)
		cmd.Dir = root
		if out, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("%w\n%s", err, out)
		}
	}
	return program, nil
}

// find soaks the spoiled dlock, and returns the promise that it breaks, or "".
func (m mistake) find(ctx context.Context, program string, seed uint64) (string, error) {
	file := program + ".json"
	cmd := exec.CommandContext(ctx, program, "soak", "--store", m.store, "--faults", m.faults, "--time", spoiledTime.String(), "--every", spoiledEvery.String(),
		"--seed", fmt.Sprint(seed), "--save", file, "--pictures", filepath.Dir(program))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGINT) } // it stops its servers
	cmd.WaitDelay = 2 * time.Minute
	var said bytes.Buffer
	cmd.Stderr = &said
	if _, exited := errors.AsType[*exec.ExitError](cmd.Run()); !exited {
		return "", ctx.Err()
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return "", errors.Join(err, errors.New(said.String()))
	}
	var results []soak.Result
	if err := json.Unmarshal(text, &results); err != nil || len(results) != 1 {
		return "", errors.Join(err, errors.New(said.String()))
	}
	for _, v := range results[0].Violations {
		return v.Promise, nil
	}
	for _, grown := range results[0].Grown {
		return "not flat: " + grown, nil
	}
	return "", errors.New(said.String())
}

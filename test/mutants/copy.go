package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// projectCopy is a copy of the project in which mutants are tried.
type projectCopy struct {
	root   string
	limit  time.Duration     // of one test
	passes map[string]string // output of each test without a mutant; empty if it passed
}

// newCopy copies the files that git tracks, or would add.
func newCopy(ctx context.Context, root string) (*projectCopy, error) {
	git := exec.CommandContext(ctx, "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	git.Dir = root
	out, err := git.Output()
	if err != nil {
		return nil, fmt.Errorf("list the files of the project: %w", err)
	}
	folder, err := os.MkdirTemp("", "dlock-mutants-")
	if err != nil {
		return nil, err
	}
	c := &projectCopy{root: folder, passes: make(map[string]string)}
	for name := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00"), "\x00") {
		if err := copyFile(filepath.Join(root, name), filepath.Join(folder, name)); err != nil {
			c.remove()
			return nil, err
		}
	}
	return c, nil
}

func copyFile(from, to string) error {
	info, err := os.Stat(from)
	if errors.Is(err, os.ErrNotExist) || err == nil && info.IsDir() {
		return nil // deleted and not committed yet, or another repository
	}
	if err != nil {
		return err
	}
	content, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	return os.WriteFile(to, content, info.Mode().Perm())
}

func (c *projectCopy) remove() { _ = os.RemoveAll(c.root) }

// runAll tries the mutants one after the other.
func (c *projectCopy) runAll(ctx context.Context, mutants []*mutant) error {
	failed := 0
	for i, m := range mutants {
		began := time.Now()
		err := c.try(ctx, m)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		verdict := "caught"
		if err != nil {
			failed++
			verdict = "FAILED: " + err.Error()
		}
		fmt.Printf("%3d/%d %-6v %s: %s\n", i+1, len(mutants), time.Since(began).Round(100*time.Millisecond), m, verdict)
	}
	fmt.Printf("%d mutants, %d caught, %d failed\n", len(mutants), len(mutants)-failed, failed)
	if failed > 0 {
		return fmt.Errorf("%d of %d mutants were not caught", failed, len(mutants))
	}
	return nil
}

// try applies m, runs its test and reverts the change. It returns nil if the test
// fails, as it must.
func (c *projectCopy) try(ctx context.Context, m *mutant) error {
	if err := c.passesWithout(ctx, m); err != nil {
		return err
	}
	before, after, err := m.applied(c.root)
	if err != nil {
		return err
	}
	path := filepath.Join(c.root, m.file)
	if err := os.WriteFile(path, []byte(after), 0o600); err != nil {
		return err
	}
	defer func() { _ = os.WriteFile(path, []byte(before), 0o600) }() // if it fails, the next mutant does not apply
	folder, pattern := m.target()
	if out, err := c.test(ctx, folder, "^$"); err != nil {
		return fmt.Errorf("does not compile:\n%s", out)
	}
	if _, err := c.test(ctx, folder, pattern); err == nil {
		return fmt.Errorf("survived %s", m.test)
	}
	return nil
}

// passesWithout checks that the test of m passes without the change.
func (c *projectCopy) passesWithout(ctx context.Context, m *mutant) error {
	said, known := c.passes[m.test]
	if !known {
		folder, pattern := m.target()
		out, err := c.test(ctx, folder, pattern)
		switch {
		case err != nil:
			said = fmt.Sprintf("%s fails without it: %v\n%s", m.test, err, out)
		case strings.Contains(out, "no tests to run"):
			said = m.test + " runs no test"
		}
		c.passes[m.test] = said
	}
	if said != "" {
		return errors.New(said)
	}
	return nil
}

// test runs the tests of one package of the copy.
func (c *projectCopy) test(ctx context.Context, folder, pattern string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", "test", "-buildvcs=false", "-count=1",
		"-timeout", c.limit.String(), "-run", pattern, "./"+folder)
	cmd.Dir = c.root
	// In a process group of its own, so that the servers and children of a test
	// end with it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 10 * time.Second
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return out.String(), err
}

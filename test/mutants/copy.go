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
	if out, err := c.build(ctx, m); err != nil {
		return fmt.Errorf("does not compile:\n%s", out)
	}
	if _, err := c.test(ctx, m); err == nil {
		return fmt.Errorf("survived %s", m.test)
	}
	return nil
}

// passesWithout checks that the test of m passes without the change.
func (c *projectCopy) passesWithout(ctx context.Context, m *mutant) error {
	said, known := c.passes[m.test]
	if !known {
		out, err := c.build(ctx, m)
		if err == nil {
			out, err = c.test(ctx, m)
		}
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

// binary is the test program of the last build, in the folder of its package.
const binary = "mutant.test"

// build builds the test program for the test of m. A mutant that does not compile is told from one
// that is caught.
func (c *projectCopy) build(ctx context.Context, m *mutant) (string, error) {
	folder, _ := m.target()
	return c.command(ctx, "", "go", "test", "-c", "-buildvcs=false", "-o", filepath.Join(folder, binary), "./"+folder)
}

// test runs the test of m.
func (c *projectCopy) test(ctx context.Context, m *mutant) (string, error) {
	folder, pattern := m.target()
	return c.command(ctx, folder, "./"+binary, "-test.timeout", c.limit.String(), "-test.run", pattern)
}

// command runs a command in a folder of the copy.
func (c *projectCopy) command(ctx context.Context, folder, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = filepath.Join(c.root, folder)
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

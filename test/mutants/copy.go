package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"
)

// projectCopy is a copy of the project in which mutants are tried, one at a time.
type projectCopy struct {
	root  string
	built map[string]bool // folders of packages whose test program is built
	cpu   time.Duration   // of all commands
}

// newCopy copies the files that git tracks, or would add, and builds mutants in.
func newCopy(ctx context.Context, root string, mutants []*mutant) (*projectCopy, error) {
	git := exec.CommandContext(ctx, "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	git.Dir = root
	out, err := git.Output()
	if err != nil {
		return nil, fmt.Errorf("list the files of the project: %w", err)
	}
	files, err := instrumented(root, mutants)
	if err != nil {
		return nil, err
	}
	folder, err := os.MkdirTemp("", "dlock-mutants-")
	if err != nil {
		return nil, err
	}
	c := &projectCopy{root: folder, built: make(map[string]bool)}
	for name := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00"), "\x00") {
		if err = copyFile(filepath.Join(root, name), filepath.Join(folder, name)); err != nil {
			break
		}
	}
	for name, text := range files {
		err = errors.Join(err, os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600))
	}
	if err != nil {
		c.remove()
		return nil, err
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

// check runs the tests of mutants, which are in one package, without a mutant. It returns the mutants whose
// test does not pass.
func (c *projectCopy) check(
	ctx context.Context, folder string, mutants []*mutant, limit time.Duration,
) map[*mutant]string {
	var patterns []string
	for _, m := range mutants {
		_, run := m.tests()
		patterns = append(patterns, run)
	}
	out, err := c.build(ctx, folder, program)
	if err == nil {
		out, err = c.test(ctx, folder, program, strings.Join(patterns, "|"), "", limit)
	}
	unfit := make(map[*mutant]string)
	for _, m := range mutants {
		for _, name := range m.functions() {
			if !strings.Contains(out, "\n--- PASS: "+name+" (") {
				unfit[m] = fmt.Sprintf("%s does not pass without it: %v\n%s", name, err, out[max(0, len(out)-4000):])
			}
		}
	}
	return unfit
}

// try runs the test of m with the mutant. It returns nil if the test fails, as it must.
func (c *projectCopy) try(ctx context.Context, m *mutant, limit time.Duration) error {
	folder, run := m.tests()
	p, err := m.find(c.root)
	if err != nil {
		return err
	}
	binary, id := program, m.id()
	if !m.isBuiltIn(p) {
		file, before, after, err := m.applied(c.root)
		if err != nil {
			return err
		}
		path := filepath.Join(c.root, file)
		if err := os.WriteFile(path, []byte(after), 0o600); err != nil {
			return err
		}
		defer func() { _ = os.WriteFile(path, []byte(before), 0o600) }() // if it fails, the next mutant does not apply
		binary, id = "mutant.test", ""
	}
	if binary != program || !c.built[folder] {
		if out, err := c.build(ctx, folder, binary); err != nil {
			return fmt.Errorf("does not compile:\n%s", out)
		}
	}
	out, err := c.test(ctx, folder, binary, run, id, limit)
	switch {
	case err == nil:
		return fmt.Errorf("survived %s", m.test)
	case !failed.MatchString(out):
		return fmt.Errorf("%s did not run: %w\n%s", m.test, err, out)
	}
	return nil
}

// failed is what the output of a test that fails, hangs or panics contains.
var failed = regexp.MustCompile(`\n--- FAIL: Test|\npanic: |\nfatal error: `)

// program is the test program of a package with all mutants of functions, in the package's folder.
const program = "mutants.test"

// build builds a test program of a package.
func (c *projectCopy) build(ctx context.Context, folder, binary string) (string, error) {
	// -trimpath, so that all copies share what is compiled.
	out, err := c.command(ctx, "", "", "go", "test", "-c", "-trimpath", "-buildvcs=false", "-ldflags=-s -w",
		"-o", filepath.Join(folder, binary), "./"+folder)
	c.built[folder] = c.built[folder] || err == nil && binary == program
	return out, err
}

// test runs tests of a package with a mutant, or with none.
func (c *projectCopy) test(ctx context.Context, folder, binary, run, id string, limit time.Duration) (string, error) {
	return c.command(ctx, folder, id, "./"+binary, "-test.v", "-test.timeout", limit.String(), "-test.run", run)
}

// command runs a command in a folder of the copy.
func (c *projectCopy) command(ctx context.Context, folder, id, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = filepath.Join(c.root, folder)
	cmd.Env = append(os.Environ(), chosen+"="+id)
	// In a process group of its own, so that the servers and children of a test
	// end with it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 10 * time.Second
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	if state := cmd.ProcessState; state != nil {
		c.cpu += state.UserTime() + state.SystemTime()
	}
	return "\n" + out.String(), err
}

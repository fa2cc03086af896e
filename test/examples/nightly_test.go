package examples

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dlock-go/dlock/test/harness/command"
	"github.com/dlock-go/dlock/test/harness/servers"
)

// TestNightly checks that one machine runs the job and the others print nothing,
// when ten machines run the line of the crontab at the same time and another has
// a clock that is behind.
func TestNightly(t *testing.T) {
	t.Parallel()
	url := servers.Run(t, servers.Redis).URL()
	scripts, err := filepath.Abs(Folder + "/nightly")
	if err != nil {
		t.Fatal(err)
	}
	reports := filepath.Join(t.TempDir(), "reports")
	line := crontabLine(t)
	const machines = 10
	ended := make(chan error, machines)
	begin := func() *exec.Cmd {
		t.Helper()
		dlock := command.New(t, url)                                             // for its environment, in which dlock is found
		dlock.Path, dlock.Args = "/bin/sh", []string{"sh", "-c", "exec " + line} // exec, so that signals do not go to a shell
		dlock.Env = append(dlock.Env, "REPORTS="+reports, "PATH="+scripts+":"+pathOf(dlock.Env))
		var output bytes.Buffer
		dlock.Stdout, dlock.Stderr = &output, &output
		if err := dlock.Start(); err != nil {
			t.Fatal(err)
		}
		go func() {
			err := dlock.Wait()
			if err != nil || output.Len() > 0 { // cron would mail the output
				err = errors.Join(fmt.Errorf("a machine printed %q", output.String()), err)
			}
			ended <- err
		}()
		return dlock
	}
	await := func() {
		t.Helper()
		select {
		case err := <-ended:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(limit):
			t.Fatal("a machine has not finished")
		}
	}
	var all []*exec.Cmd
	for range machines {
		all = append(all, begin())
	}
	for range machines - 1 { // the machine that ran the job still holds the lock
		await()
	}
	begin() // the machine whose clock is behind
	await()
	content, err := os.ReadFile(reports)
	if err != nil {
		t.Fatal(err)
	}
	if lines := strings.Count(string(content), "\n"); lines != 1 || !strings.HasPrefix(string(content), "report ") {
		t.Errorf("the reports are %q; want one", content)
	}
	out := command.Run(t, url, "ls")
	if !strings.Contains(out.Stdout, "nightly-report") || !strings.Contains(out.Stdout, "nightly report") {
		t.Errorf("ls while it is held: %+v", out)
	}
	for _, machine := range all {
		_ = machine.Process.Signal(syscall.SIGTERM) // ends the last machine; the others have ended
	}
	await() // it ends early, with the status of the job
}

// crontabLine returns the command of the only entry.
func crontabLine(t *testing.T) string {
	t.Helper()
	content, err := os.ReadFile(Folder + "/nightly/crontab")
	if err != nil {
		t.Fatal(err)
	}
	var commands []string
	for line := range strings.Lines(string(content)) {
		if fields := strings.SplitN(strings.TrimSpace(line), " ", 6); len(fields) == 6 && fields[4] == "*" {
			commands = append(commands, fields[5])
		}
	}
	if len(commands) != 1 {
		t.Fatalf("the crontab has the entries %q; want one", commands)
	}
	return commands[0]
}

func pathOf(env []string) (path string) {
	for _, pair := range env {
		if value, found := strings.CutPrefix(pair, "PATH="); found {
			path = value // the last assignment counts
		}
	}
	return path
}

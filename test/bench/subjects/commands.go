package subjects

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"

	"github.com/dlock-go/dlock/test/harness/command"
)

// commands are the subjects of the case exec: a command that does nothing, alone,
// under dlock, and under peers. url is that of the store.
func commands(url string, peers ...Subject) []Subject {
	return append([]Subject{
		commandSubject("true", inPath("true"), func(Place) []string { return nil }),
		commandSubject("dlock exec", command.Program, func(at Place) []string {
			return []string{"exec", "--store", at.url(url), "x", "--", "true"}
		}),
	}, peers...)
}

var (
	flockCommand = commandSubject("flock", inPath("flock"), func(at Place) []string {
		return []string{filepath.Join(at.Dir, "x"), "true"}
	})
	etcdctlCommand = commandSubject("etcdctl lock", inPath("etcdctl"), func(at Place) []string {
		return []string{"--endpoints", at.Addrs[0], "lock", "x", "true"}
	})
)

func inPath(name string) func() (string, error) {
	return func() (string, error) { return exec.LookPath(name) }
}

// commandSubject is a program with its arguments. An acquisition runs it to its end.
func commandSubject(name string, program func() (string, error), args func(Place) []string) Subject {
	return Subject{
		Name: name, Command: true,
		Open: func(_ context.Context, at Place) (*Client, error) {
			path, err := program()
			run := func(ctx context.Context) error {
				cmd := exec.CommandContext(ctx, path, args(at)...)
				if output, err := cmd.CombinedOutput(); err != nil {
					return fmt.Errorf("%s: %w: %s", cmd, err, output)
				}
				return nil
			}
			nothing := func(context.Context) error { return nil }
			newWorker := func(string) Worker { return Worker{run, nothing} }
			return &Client{Worker: workers(newWorker), Close: func() error { return nil }}, err
		},
		Missing: func() error {
			_, err := program()
			return err
		},
	}
}

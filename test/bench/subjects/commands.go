package subjects

import (
	"context"
	"os/exec"
	"path/filepath"

	"github.com/dlock-go/dlock/test/harness/command"
)

// commands are the subjects of the case exec: the command alone, under dlock, and
// under peers. url is that of the store.
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

// commandSubject is a program with its arguments.
func commandSubject(name string, program func() (string, error), args func(Place) []string) Subject {
	return Subject{Name: name, Command: func(ctx context.Context, at *Place) (*exec.Cmd, error) {
		path, err := program()
		if err != nil || at == nil {
			return nil, err
		}
		return exec.CommandContext(ctx, path, args(*at)...), nil
	}}
}

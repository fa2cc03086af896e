package subjects

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"

	"github.com/dlock-go/dlock/test/harness/checkout"
)

// commands are the subjects of the case exec: the command alone, under dlock, and
// under peers. url returns the store in the form that dlock's command accepts.
func commands(url func(dir string) (string, error), peers ...Subject) []Subject {
	return append([]Subject{
		{Name: "true", Command: program(func(string) ([]string, error) { return []string{"true"}, nil })},
		{Name: "dlock exec", Command: func(ctx context.Context, dir string) (*exec.Cmd, error) {
			path, err := dlockProgram()
			if err != nil || dir == "" {
				return nil, err
			}
			store, err := url(dir)
			if err != nil {
				return nil, err
			}
			return exec.CommandContext(ctx, path, "exec", "--store", store, "x", "--", "true"), nil
		}},
	}, peers...)
}

// program makes a command of its words. The first one is looked up in PATH.
func program(words func(dir string) ([]string, error)) func(context.Context, string) (*exec.Cmd, error) {
	return func(ctx context.Context, dir string) (*exec.Cmd, error) {
		all, err := words(dir)
		if err != nil {
			return nil, err
		}
		path, err := exec.LookPath(all[0])
		if err != nil {
			return nil, err
		}
		return exec.CommandContext(ctx, path, all[1:]...), nil
	}
}

var flockCommand = Subject{Name: "flock", Command: program(func(dir string) ([]string, error) {
	return []string{"flock", filepath.Join(dir, "x"), "true"}, nil
})}

var etcdctlCommand = Subject{Name: "etcdctl lock", Command: program(func(dir string) ([]string, error) {
	if dir == "" {
		return []string{"etcdctl"}, nil
	}
	addr, err := os.ReadFile(filepath.Join(dir, etcdAddressFile))
	return []string{"etcdctl", "--endpoints", string(addr), "lock", "x", "true"}, err
})}

// built is the folder of dlock's command; empty before the build.
var built string

// dlockProgram builds dlock's command once and returns its path.
var dlockProgram = sync.OnceValues(func() (string, error) {
	folder, err := os.MkdirTemp("", "dlock-bench-command-")
	if err != nil {
		return "", err
	}
	built = folder
	path := filepath.Join(folder, "dlock")
	cmd := exec.Command("go", "build", "-o", path, ".")
	if cmd.Dir, err = checkout.Folder("cmd/dlock"); err != nil {
		return "", err
	}
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-buildvcs=false -trimpath")
	if output, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building dlock: %w: %s", err, output)
	}
	return path, nil
})

// RemoveCommand removes the command that the case exec built.
func RemoveCommand() error {
	if built == "" {
		return nil
	}
	return os.RemoveAll(built)
}

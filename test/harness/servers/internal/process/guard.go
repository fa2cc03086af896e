package process

import (
	"fmt"
	"io"
	"os/exec"
	"syscall"
)

// guardScript outlives a test binary that panics or is killed. Then it kills the
// processes that work in the folder and removes the folder. It notices the end of
// the test binary by the end of its input, which only this process holds open.
const guardScript = `
cat >/dev/null
tries=0
while [ -e "$1" ] && [ $tries -lt 100 ]; do
	for process in /proc/[0-9]*; do
		case $(readlink "$process/cwd") in
		"$1" | "$1"/*) kill -KILL "${process#/proc/}" ;;
		esac
	done
	rm -rf "$1"
	tries=$((tries + 1))
done 2>/dev/null
`

// Guard is the running guardScript of one folder.
type Guard struct {
	cmd   *exec.Cmd
	input io.Closer
}

// StartGuard starts the guard of a folder.
func StartGuard(dir string) (*Guard, error) {
	cmd := exec.Command("/bin/sh", "-c", guardScript, "dlock-test-guard", dir)
	cmd.Dir = "/"
	// In a session of its own it survives the Ctrl-C that ends the tests.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	input, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("starting the guard of %s: %w", dir, err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting the guard of %s: %w", dir, err)
	}
	return &Guard{cmd, input}, nil
}

// Finish lets the guard clean up, and waits for it.
func (g *Guard) Finish() error {
	_ = g.input.Close() // if it fails, Wait reports it
	return g.cmd.Wait()
}

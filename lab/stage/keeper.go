//go:build linux

package stage

import (
	"fmt"
	"io"
	"os/exec"
	"syscall"
)

// Keeper removes something when this process closes it, or ends for whatever reason.
type Keeper struct {
	cmd   *exec.Cmd
	input io.Closer // which only this process holds open
}

// Keep starts a keeper, which executes a shell script in the end. flags are those of clone.
func Keep(flags uintptr, script string, args ...string) (*Keeper, error) {
	cmd := exec.Command("/bin/sh", append([]string{"-c", "cat >/dev/null; " + script, "dlock-lab-keeper"}, args...)...)
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: flags, Setsid: true} // it survives Ctrl-C
	input, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	return &Keeper{cmd, input}, cmd.Start()
}

// Close returns when the script has ended.
func (k *Keeper) Close() error {
	_ = k.input.Close() // if it fails, Wait reports it
	if err := k.cmd.Wait(); err != nil {
		return fmt.Errorf("%q: %w", k.cmd.Args[2:], err)
	}
	return nil
}

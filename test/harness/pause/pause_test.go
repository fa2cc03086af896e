package pause_test

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock/test/harness/pause"
)

// endless starts a process that is never idle.
func endless(t *testing.T) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("sh", "-c", "while :; do :; done")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd
}

// used returns the CPU time of a process, in nanoseconds.
func used(t *testing.T, pid int) string {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/schedstat", pid))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(string(stat))[0]
}

func TestProcess(t *testing.T) {
	pid := endless(t).Process.Pid
	for begin := used(t, pid); used(t, pid) == begin; { // until it has run
		<-time.After(time.Millisecond)
	}
	if err := pause.Process(pid); err != nil {
		t.Fatal(err)
	}
	before := used(t, pid)
	<-time.After(50 * time.Millisecond)
	if after := used(t, pid); before != after {
		t.Errorf("CPU time of the paused process: %s ns, later %s ns", before, after)
	}
}

func TestEndedProcessCannotBePaused(t *testing.T) {
	cmd := endless(t)
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if err := pause.Process(cmd.Process.Pid); err == nil {
		t.Error("a process that has ended was paused")
	}
}

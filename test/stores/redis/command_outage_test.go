package redis

import (
	"bytes"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dlock-go/dlock/test/harness/command"
	"github.com/dlock-go/dlock/test/harness/proxy"
	"github.com/dlock-go/dlock/test/harness/servers"
)

// TestCommandOnSlowServer: the limit of five seconds is for silence. A server that answers
// every request after 0.8 s needs longer until the first lock, and is used all the same.
func TestCommandOnSlowServer(t *testing.T) {
	t.Parallel()
	p := proxy.Run(t, servers.Run(t, servers.Redis).Addr())
	p.Delay(400 * time.Millisecond)
	for _, args := range [][]string{{"exec", "-n", "a", "--", "true"}, {"ls"}, {"doctor"}} {
		t.Run(args[0], func(t *testing.T) {
			t.Parallel()
			if out := command.Run(t, "redis://"+p.Addr(), args...); out.Status != 0 {
				t.Errorf("dlock %v: %+v", args, out)
			}
		})
	}
}

// TestSignalEndsHangingRelease: a second signal ends a release that the server does not
// confirm, and dlock reports until when the lock is held.
func TestSignalEndsHangingRelease(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.Redis)
	cmd := command.New(t, server.URL(), "exec", "--ttl", "20s", "a", "--", "sh", "-c", "echo; read line; exit 7")
	input, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := output.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if err := server.Pause(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Resume() }) // so that it can be stopped in order
	input.Close()
	time.Sleep(time.Second) // the command ends, and the release hangs
	began := time.Now()
	for range 2 {
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		time.Sleep(50 * time.Millisecond)
	}
	_ = cmd.Wait() // the exit status is checked below
	if took := time.Since(began); took > 3*time.Second {
		t.Errorf("it ended %v after the first signal", took)
	}
	if status := cmd.ProcessState.ExitCode(); status != 7 || !strings.Contains(stderr.String(), "it expires within 20s") {
		t.Errorf("status %d, %q; want 7 and until when the lock is held", status, stderr.String())
	}
}

package redis

import (
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
	p := proxy.Run(t, servers.Run(t, servers.Redis, inMemory...).Addr())
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
	server := servers.Run(t, servers.Redis, inMemory...)
	// The command outlives the signals, so that only the release can end by them.
	h := command.Start(t, server.URL(), "exec", "--ttl", "20s", "a", "--", "sh", "-c", "trap '' TERM; echo; read line; echo; exit 7")
	must(t, server.Pause())
	t.Cleanup(func() { _ = server.Resume() }) // so that it can be stopped in order
	h.CloseInput()
	h.Next(t) // the command ends, and the release hangs
	ended := make(chan error, 1)
	go func() { ended <- h.Cmd.Wait() }()
	began := time.Now()
	again := time.NewTicker(100 * time.Millisecond)
	defer again.Stop()
	for running := true; running; {
		_ = h.Cmd.Process.Signal(syscall.SIGTERM) // it may have ended
		select {
		case <-ended: // the exit status is checked below
			running = false
		case <-again.C:
		}
	}
	if took := time.Since(began); took > 3*time.Second {
		t.Errorf("it ended %v after the first signal", took)
	}
	if status := h.Cmd.ProcessState.ExitCode(); status != 7 || !strings.Contains(h.Stderr.String(), "it expires within 20s") {
		t.Errorf("status %d, %q; want 7 and until when the lock is held", status, h.Stderr.String())
	}
}

package etcd

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock/test/harness/command"
	"github.com/dlock-go/dlock/test/harness/servers"
	"github.com/dlock-go/dlock/test/harness/want"
)

// TestCommandLine runs the command line on etcd.
func TestCommandLine(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.Etcd)
	url := server.URL() + "/jobs"
	if out := command.Run(t, url, "exec", "job", "--", "sh", "-c", "exit 7"); out.Status != 7 || out.Stderr != "" {
		t.Errorf("exec of a command that exits with 7: %+v", out)
	}
	lease := lockAnyhow(t, newClient(t, url, longTTL), "job")
	if out := command.Run(t, url, "exec", "-n", "job", "--", "true"); out.Status != 75 || !strings.Contains(out.Stderr, "held by") {
		t.Errorf("exec -n of a held lock: %+v", out)
	}
	if out := command.Run(t, url, "ls", "--json"); out.Status != 0 || !strings.Contains(out.Stdout, `"name":"job"`) {
		t.Errorf("ls --json: %+v", out)
	}
	want.Unlock(t, lease)
	if out := command.Run(t, url, "doctor", "--json"); out.Status != 0 || !strings.Contains(out.Stdout, `"fencing":"strong"`) {
		t.Errorf("doctor: %+v", out)
	}
	for bad, want := range map[string]command.Result{
		"etcd://":                  {Status: 64, Stderr: "host is missing"},
		url + "?other=1":           {Status: 64, Stderr: "unknown parameter"},
		"etcd://127.0.0.1:1":       {Status: 69, Stderr: "connection refused"},
		server.URL() + "?tls=true": {Status: 69, Stderr: "unreachable"},
	} {
		out := command.Run(t, bad, "exec", "-w", "5s", "a", "--", "true")
		if out.Status != want.Status || !strings.Contains(out.Stderr, want.Stderr) {
			t.Errorf("%s: %+v; want %d and %q", bad, out, want.Status, want.Stderr)
		}
	}
}

// TestCommandKeepsTheLimitInAnOutage: if the server stops answering while dlock waits, --wait
// still ends the run, and closing a silent store does not take much longer.
func TestCommandKeepsTheLimitInAnOutage(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.Etcd)
	holder := command.Hold(t, server.URL(), "job")
	defer holder.End()
	waiter := command.New(t, server.URL(), "exec", "-v", "-w", "4", "job", "--", "true")
	stderr := want.Value(waiter.StderrPipe())(t)
	begun := time.Now()
	want.OK(t, waiter.Start())
	if _, err := stderr.Read(make([]byte, 100)); err != nil { // it has connected
		t.Fatal(err)
	}
	time.AfterFunc(time.Second, func() { _ = server.Pause() })
	_, _ = io.Copy(io.Discard, stderr) // until it ends
	_ = waiter.Wait()                  // the exit status is checked below
	if took, status := time.Since(begun), waiter.ProcessState.ExitCode(); took > limit || status != 75 && status != 69 {
		t.Errorf("it ended with %d after %v; want 75 or 69 after about 4 s", status, took)
	}
	if err := server.Resume(); err != nil {
		t.Error(err)
	}
}

package etcd

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dlock-go/dlock/test/servers"
)

// buildDlock builds the command line.
func buildDlock(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "dlock")
	cmd := exec.Command("go", "build", "-o", path, ".")
	cmd.Dir = "../../cmd/dlock"
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-buildvcs=false")
	if output, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	return path
}

// TestCommand runs the command line on etcd.
func TestCommand(t *testing.T) {
	t.Parallel()
	program := buildDlock(t)
	server := servers.Run(t, servers.Etcd)
	run := func(store string, args ...string) (status int, stdout, stderr string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), program, args...)
		cmd.Env = append(os.Environ(), "DLOCK_STORE="+store)
		var out, complaints bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &complaints
		var exit *exec.ExitError
		if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		return cmd.ProcessState.ExitCode(), out.String(), complaints.String()
	}
	url := server.URL() + "/jobs"
	if status, _, stderr := run(url, "exec", "job", "--", "sh", "-c", "exit 7"); status != 7 || stderr != "" {
		t.Errorf("exec of a command that exits with 7: %d, %s", status, stderr)
	}
	client := newClient(t, url, longTTL)
	lease := lockAnyhow(t, client, "job")
	if status, _, stderr := run(url, "exec", "-n", "job", "--", "true"); status != 75 || !strings.Contains(stderr, "held by") {
		t.Errorf("exec -n of a held lock: %d, %s", status, stderr)
	}
	if status, stdout, _ := run(url, "ls", "--json"); status != 0 || !strings.Contains(stdout, `"name":"job"`) {
		t.Errorf("ls --json: %d, %s", status, stdout)
	}
	unlock(t, lease)
	if status, stdout, _ := run(url, "doctor", "--json"); status != 0 || !strings.Contains(stdout, `"fencing":"strong"`) {
		t.Errorf("doctor: %d, %s", status, stdout)
	}
	for bad, want := range map[string]struct {
		status int
		says   string
	}{
		"etcd://":                  {64, "host is missing"},
		url + "?other=1":           {64, "unknown parameter"},
		"etcd://127.0.0.1:1":       {69, "connection refused"},
		server.URL() + "?tls=true": {69, "unreachable"},
	} {
		status, _, stderr := run(bad, "exec", "-w", "5s", "a", "--", "true")
		if status != want.status || !strings.Contains(stderr, want.says) {
			t.Errorf("%s: %d, %q; want %d and %q", bad, status, stderr, want.status, want.says)
		}
	}
}

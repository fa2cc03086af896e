package redis

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dlock-go/dlock/test/servers"
)

// program builds the command line, once.
var program = sync.OnceValues(func() (string, error) {
	folder, err := os.MkdirTemp("", "dlock-command-")
	if err != nil {
		return "", err
	}
	built = folder
	path := filepath.Join(folder, "dlock")
	cmd := exec.Command("go", "build", "-o", path, ".")
	cmd.Dir = "../../cmd/dlock"
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=-buildvcs=false")
	if output, err := cmd.CombinedOutput(); err != nil {
		return "", errors.Join(err, errors.New(string(output)))
	}
	return path, nil
})

// built is the folder to remove when all tests are over.
var built string

// ran is what a run of the command line left.
type ran struct {
	status         int
	stdout, stderr string
}

func dlockCommand(t *testing.T, store string, args ...string) *exec.Cmd {
	t.Helper()
	path, err := program()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), path, args...)
	cmd.Env = append(os.Environ(), "DLOCK_STORE="+store, "PATH="+filepath.Dir(path)+":"+os.Getenv("PATH"))
	return cmd
}

func runDlock(t *testing.T, store string, args ...string) ran {
	t.Helper()
	cmd := dlockCommand(t, store, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return ran{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

// TestCommand runs the command line on every kind of store URL.
func TestCommand(t *testing.T) {
	for name, start := range map[string]func(testing.TB) topology{
		"single": single, "sentinel": sentinel, "cluster": cluster, "TLS": secure, "redlock": redlock,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := start(t).url
			if out := runDlock(t, url, "exec", "job", "--", "sh", "-c", "exit 7"); out.status != 7 || out.stderr != "" {
				t.Errorf("exec of a command that exits with 7: %+v", out)
			}
			holder := dlockCommand(t, url, "exec", "--ttl", "20s", "job {1}", "--", "sh", "-c", "echo $DLOCK_TOKEN; cat")
			input, err := holder.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			output, err := holder.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := holder.Start(); err != nil {
				t.Fatal(err)
			}
			line := make([]byte, 64)
			n, err := output.Read(line)
			if err != nil {
				t.Fatal(err)
			}
			token := strings.TrimSpace(string(line[:n]))
			if _, err := strconv.ParseUint(token, 10, 64); err != nil {
				t.Fatalf("DLOCK_TOKEN is %q", token)
			}
			if out := runDlock(t, url, "exec", "-n", "job {1}", "--", "true"); out.status != 75 || !strings.Contains(out.stderr, "held by") {
				t.Errorf("exec -n of a held lock: %+v; want 75 and who has it", out)
			}
			if out := runDlock(t, url, "ls", "--json", "job"); out.status != 0 || !strings.Contains(out.stdout, `"token":`+token) {
				t.Errorf("ls --json: %+v; want token %s", out, token)
			}
			if out := runDlock(t, url, "show", "job {1}"); out.status != 0 || !strings.Contains(out.stdout, token) {
				t.Errorf("show: %+v; want token %s", out, token)
			}
			if out := runDlock(t, url, "break", "job {1}", "--token", "1"); out.status == 0 {
				t.Errorf("break with another token: %+v; want a failure", out)
			}
			began := time.Now()
			if out := runDlock(t, url, "break", "job {1}", "--token", token); out.status != 0 {
				t.Errorf("break: %+v", out)
			}
			if out := runDlock(t, url, "exec", "-w", "10s", "job {1}", "--", "true"); out.status != 0 {
				t.Errorf("exec after break: %+v", out)
			}
			t.Logf("free %v after it was broken", time.Since(began).Round(time.Millisecond))
			input.Close()
			holder.Wait() // it may have noticed the loss, or not
			if out := runDlock(t, url, "doctor", "--json"); !strings.Contains(out.stdout, `"fencing":"clock-bound"`) || out.status > 1 {
				t.Errorf("doctor: %+v", out)
			}
		})
	}
}

func TestCommandWithBadInput(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.Redis)
	at := server.Addr()
	for url, want := range map[string]ran{
		"redis://":                                {status: 64, stderr: "host is missing"},
		"redis://" + at + "?protocol=xyz":         {status: 64, stderr: "not redisson or plain"},
		"redis://ann:canary7bird@" + at:           {status: 69, stderr: "wrong user or password"},
		"redis://127.0.0.1:1":                     {status: 69, stderr: "connection refused"},
		"rediss://" + at:                          {status: 69, stderr: "unreachable"},
		"redis+sentinel://" + at:                  {status: 64, stderr: "name of the master"},
		"redis+sentinel://" + at + "/dlock":       {status: 69, stderr: "unreachable"},
		"redis+cluster://" + at + "/1":            {status: 64, stderr: "no path"},
		"redlock://" + at + "," + at:              {status: 64, stderr: "tolerate no failure"},
		"redlock://a:1,b:2,c:3,d:4":               {status: 64, stderr: "leave one out"},
		"redlock://a,b,c?protocol=redisson":       {status: 64, stderr: "plain protocol only"},
		"redlock://" + at + "," + at + "," + at:   {status: 69, stderr: "same server"},
		"redlock://127.0.0.1:1,127.0.0.1:2," + at: {status: 69, stderr: "2 of 3"},
	} {
		out := runDlock(t, url, "exec", "-w", "2s", "a", "--", "true")
		if out.status != want.status || !strings.Contains(out.stderr, want.stderr) {
			t.Errorf("%s: status %d, %q; want %d and %q", url, out.status, out.stderr, want.status, want.stderr)
		}
		if strings.Contains(out.stderr, "canary7bird") {
			t.Errorf("%s: the password is shown: %s", url, out.stderr)
		}
	}
}

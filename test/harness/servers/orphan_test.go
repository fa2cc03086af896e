package servers

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/dlock-go/dlock/test/harness/servers/internal/process"
)

// childVariable makes the test binary simulate a test run that ends badly.
const childVariable = "DLOCK_SERVERS_CHILD"

// started is the report of the child to its parent.
type started struct {
	Dirs []string
}

func TestMain(m *testing.M) {
	if how := os.Getenv(childVariable); how != "" {
		os.Exit(child(how))
	}
	os.Exit(m.Run())
}

func child(how string) int {
	var report started
	for _, kind := range []*Kind{Redis, Postgres} { // a server of one process, and a server of many
		s, err := Start(kind)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		if how == "hang" {
			if err := s.Pause(); err != nil { // a stopped process must be cleaned up, too
				fmt.Fprintln(os.Stderr, err)
				return 1
			}
		}
		report.Dirs = append(report.Dirs, s.Dir())
	}
	if err := json.NewEncoder(os.Stdout).Encode(report); err != nil {
		return 1
	}
	switch how {
	case "panic":
		panic("on purpose")
	case "exit":
		return 0 // without Stop
	default:
		select {} // until the parent kills the child
	}
}

func TestNothingIsLeftAfter(t *testing.T) {
	for name, how := range map[string]string{
		"Panic":           "panic",
		"ExitWithoutStop": "exit",
		"Kill":            "wait",
		"KillDuringPause": "hang",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), childVariable+"="+how)
			stdout, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			line, err := bufio.NewReader(stdout).ReadBytes('\n')
			var report started
			if err == nil {
				err = json.Unmarshal(line, &report)
			}
			if err != nil {
				t.Errorf("the child wrote %q: %v", line, err)
			}
			if how == "wait" || how == "hang" {
				if err := cmd.Process.Kill(); err != nil {
					t.Error(err)
				}
			}
			_ = cmd.Wait() // it ends badly by design
			if len(report.Dirs) != 2 {
				t.Fatalf("the child started %d servers, want 2", len(report.Dirs))
			}
			for _, dir := range report.Dirs {
				eventually(t, func() bool {
					_, err := os.Stat(dir)
					pids, membersErr := process.Members(dir)
					return os.IsNotExist(err) && membersErr == nil && len(pids) == 0
				})
				gone(t, dir)
			}
		})
	}
}

// eventually polls done until it succeeds, for effects of other processes that
// cause no event.
func eventually(t *testing.T, done func() bool) {
	t.Helper()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	limit := time.After(20 * time.Second)
	for !done() {
		select {
		case <-tick.C:
		case <-limit:
			return // the caller checks the result
		}
	}
}

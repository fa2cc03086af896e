package sqlrig

import (
	"strings"
	"testing"

	"github.com/dlock-go/dlock/test/harness/command"
)

// Command runs the command line with a store URL.
func (d *Database) Command(t *testing.T, raw string) {
	t.Helper()
	if out := command.Run(t, raw, "exec", "job", "--", "sh", "-c", "exit 7"); out.Status != 7 || out.Stderr != "" {
		t.Errorf("exec of a command that exits with 7: %+v", out)
	}
	holder := command.Hold(t, raw, "job {1}")
	if out := command.Run(t, raw, "exec", "-n", "job {1}", "--", "true"); out.Status != 75 {
		t.Errorf("exec -n of a held lock: %+v; want 75", out)
	}
	if out := command.Run(t, raw, "doctor", "--json"); !strings.Contains(out.Stdout, `"store":"`+d.Dialect.String()) || out.Status > 1 {
		t.Errorf("doctor: %+v", out)
	}
	if strings.Contains(raw, "scheme=forupdate") || strings.Contains(raw, "scheme=session") {
		if out := command.Run(t, raw, "ls"); out.Status != 64 || !strings.Contains(out.Stderr, "cannot be listed") {
			t.Errorf("ls: %+v; want 64, since such locks cannot be listed", out)
		}
		if status := holder.End(); status != 0 {
			t.Errorf("the holder ends with %d", status)
		}
		return
	}
	if out := command.Run(t, raw, "ls", "--json", "job"); out.Status != 0 || !strings.Contains(out.Stdout, `"token":`+holder.Token) {
		t.Errorf("ls --json: %+v; want token %s", out, holder.Token)
	}
	if out := command.Run(t, raw, "break", "job {1}", "--token", holder.Token); out.Status != 0 {
		t.Errorf("break: %+v", out)
	}
	if out := command.Run(t, raw, "exec", "-n", "job {1}", "--", "true"); out.Status != 0 {
		t.Errorf("exec after break: %+v", out)
	}
	holder.End() // it may have noticed the loss, or not
}

// CommandRefuses runs the command line with store URLs that cannot be used.
func CommandRefuses(t *testing.T, bad map[string]command.Result) {
	t.Helper()
	for raw, want := range bad {
		for _, args := range [][]string{{"exec", "-w", "2s", "a", "--", "true"}, {"doctor", "--json"}} {
			out := command.Run(t, raw, args...)
			if out.Status != want.Status || !strings.Contains(out.Stderr, want.Stderr) {
				t.Errorf("%s: status %d, %q; want %d and %q", raw, out.Status, out.Stderr, want.Status, want.Stderr)
			}
			if out.Status != 64 && (!strings.Contains(out.Stderr, ": cannot use ") || strings.Count(out.Stderr, "\n") != 1) {
				t.Errorf("%s: want one line that names the store: %s", raw, out.Stderr)
			}
			if out.Status != 69 && strings.Contains(out.Stderr, "unreachable") {
				t.Errorf("%s: the store is reachable: %s", raw, out.Stderr)
			}
			if strings.Contains(out.Stderr+out.Stdout, Canary) {
				t.Errorf("%s: the password is shown: %s%s", raw, out.Stderr, out.Stdout)
			}
		}
	}
}

// Canary is a password that must never be seen again.
const Canary = "Canary7birdSings"

package examples

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/dlock-go/dlock/test/harness/command"
	"github.com/dlock-go/dlock/test/harness/servers"
)

// TestServiceOfSystemd runs the command of the service on two machines, with a store that only the
// credential names. One machine runs the job and keeps the lock. The other ends with a status that
// the service counts as a success.
func TestServiceOfSystemd(t *testing.T) {
	t.Parallel()
	unit, err := os.ReadFile("../../packaging/systemd/nightly-report.service")
	if err != nil {
		t.Fatal(err)
	}
	setting := func(key string) string {
		t.Helper()
		found := regexp.MustCompile(`(?m)^`+key+`=(.+)$`).FindAllStringSubmatch(string(unit), -1)
		if len(found) != 1 {
			t.Fatalf("the service has %d settings %s; want one", len(found), key)
		}
		return found[0][1]
	}
	credentials := t.TempDir()
	name, _, _ := strings.Cut(setting("LoadCredential"), ":")
	url := servers.Run(t, servers.Redis).URL()
	if err := os.WriteFile(filepath.Join(credentials, name), []byte(url+"\n"), 0o400); err != nil {
		t.Fatal(err)
	}
	line := strings.NewReplacer("%d", credentials, "/usr/local/bin/nightly-report", "echo report").Replace(setting("ExecStart"))
	args := strings.Fields(line)
	if args[0] != "/usr/bin/dlock" {
		t.Fatalf("the service starts %s; want the program of the packages", args[0])
	}
	first := command.Start(t, "", args[1:]...)
	second := command.Run(t, "", args[1:]...)
	if second.Status != 0 || strings.Contains(second.Stdout, "report") {
		t.Errorf("a machine that comes second: %+v; want status 0 and no report", second)
	}
	_ = first.Cmd.Process.Signal(syscall.SIGTERM)
	if err := first.Cmd.Wait(); err != nil || first.Line != "report" {
		t.Errorf("the first machine printed %q: %v; stderr: %s", first.Line, err, first.Stderr.String())
	}
}

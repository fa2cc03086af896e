package repo

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const root = "../.."

func TestImportsPointDown(t *testing.T) {
	files, err := readFiles(root)
	if err != nil {
		t.Fatal(err)
	}
	seen := make(map[string]bool)
	for _, f := range files {
		seen[f.folder] = true
	}
	for _, folder := range []string{".", "driver", "memlock", "cmd/dlock", "examples/charge", "test/repo"} {
		if !seen[folder] {
			t.Fatalf("no Go file was found in %s: wrong folder", folder)
		}
	}
	for _, violation := range violations(files) {
		t.Error(violation)
	}
}

func TestViolationsAreFound(t *testing.T) {
	for _, test := range []struct {
		folder, name, imported string
		want                   string // part of the message; empty for no violation
	}{
		{"driver", "store.go", "context", ""},
		{"driver", "store.go", "golang.org/x/sys/unix", "no third-party requirement"},
		{"driver", "store.go", module, "must not know the dlock layer"},
		{"driver", "store.go", module + "/internal/localqueue", "must not know the internal layer"},
		{"driver", "store.go", module + "/driver/sub", ""},
		{".", "client.go", module + "/driver", ""},
		{".", "client.go", module + "/internal/localqueue", ""},
		{".", "client.go", module + "/memlock", "must not know the store layer"},
		{".", "client_test.go", module + "/memlock", ""},
		{".", "client_test.go", "github.com/stretchr/testify/assert", "no third-party requirement"},
		{"internal/localqueue", "gate.go", module, "must not know the dlock layer"},
		{"internal/localqueue", "gate.go", module + "/internal/backoff", ""},
		{"memlock", "memlock.go", module + "/driver", ""},
		{"memlock", "memlock.go", module, "must not know the dlock layer"},
		{"memlock", "memlock.go", module + "/sqllock", "must not know the store layer"},
		{"memlock", "memlock_test.go", module + "/drivertest", ""},
		{"sqllock", "sqllock.go", module + "/redislock", "must not know the client store layer"},
		{"redislock/redlock", "redlock.go", module + "/redislock/internal/master", ""},
		{"redislock", "redislock.go", "github.com/redis/go-redis/v9", ""},
		{"redislock", "redislock.go", module + "/etcdlock", "must not know the client store layer"},
		{"redislock", "redislock.go", module + "/sqllock", "must not know the store layer"},
		{"drivertest", "kit.go", module, ""},
		{"drivertest", "kit.go", module + "/memlock", "must not know the store layer"},
		{"drivertest", "kit.go", module + "/internal/localqueue", "must not know the internal layer"},
		{"cmd/dlock", "main.go", module + "/sqllock", ""},
		{"cmd/dlock", "main.go", module + "/cmd/dlock/internal/ui", ""},
		{"cmd/dlock", "main.go", module + "/test/harness/servers", "must not know the test layer"},
		{"cmd/dlock", "main_test.go", module + "/test/harness/servers", "must not know the test layer"},
		{"examples/charge", "main.go", module + "/fence", ""},
		{"examples/charge", "main.go", module + "/internal/clock", "must not know the internal layer"},
		{"examples/charge", "main.go", module + "/test/harness/servers", "must not know the test layer"},
		{"test/bench", "main.go", module + "/test/harness/servers", ""},
		{"test/bench", "main.go", module + "/cmd/dlock", "must not know the command layer"},
		{"lab/stage", "stage.go", module + "/test/harness/proxy", ""},
		{"lab/subject", "dlock.go", module + "/cmd/dlock/internal/stores", "must not know the command layer"},
		{"newstore", "newstore.go", "context", "no layer has this folder"},
		{"memlock", "memlock.go", module + "/newstore", "no layer has that folder"},
	} {
		got := strings.Join(violations([]file{{test.folder, test.name, []string{test.imported}}}), "\n")
		if test.want == "" && got != "" {
			t.Errorf("%s/%s may import %s, but: %s", test.folder, test.name, test.imported, got)
		}
		if !strings.Contains(got, test.want) {
			t.Errorf("%s/%s importing %s gives %q, want %q", test.folder, test.name, test.imported, got, test.want)
		}
	}
}

func TestForeignFilesAreRead(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "driver"), 0o755); err != nil {
		t.Fatal(err)
	}
	source := "//go:build plan9\n\npackage driver\n\nimport _ \"example.com/elsewhere\"\n"
	if err := os.WriteFile(filepath.Join(dir, "driver", "x.go"), []byte(source), 0o644); err != nil {
		t.Fatal(err)
	}
	files, err := readFiles(dir)
	if err != nil {
		t.Fatal(err)
	}
	if got := violations(files); len(got) != 1 {
		t.Errorf("violations %q, want the one in a file for another platform", got)
	}
}

func TestRootModuleRequiresNothing(t *testing.T) {
	content, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	if directives := regexp.MustCompile(`(?m)^\s*(require|replace|tool)\b.*`).FindAllString(string(content), -1); directives != nil {
		t.Errorf("the root module's go.mod has %q: its users would inherit that", directives)
	}
	if _, err := os.Stat(filepath.Join(root, "go.sum")); !os.IsNotExist(err) {
		t.Errorf("the root module has a go.sum, so it requires something (%v)", err)
	}
}

package servers

import (
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/dlock-go/dlock/test/harness/servers/internal/wire"
)

func TestMissingServerErrorExplainsInstallation(t *testing.T) {
	for _, binary := range []string{"no-such-server", "/nowhere/*/no-such-server"} {
		_, err := Start(&Kind{Name: "imaginary", Binary: binary})
		if err == nil {
			t.Fatalf("%s: started", binary)
		}
		for _, want := range []string{"imaginary is not installed", "make servers", "DLOCK_TEST_IMAGINARY"} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %q does not mention %q", binary, err, want)
			}
		}
	}
}

func TestFailedStartShowsTheLogAndLeavesNothing(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	if err := os.Chmod(filepath.Dir(os.TempDir()), 0o755); err != nil { // for the servers' user
		t.Fatal(err)
	}
	_, err := Start(Redis, "--no-such-setting", "1")
	if err == nil {
		t.Fatal("a server with an unknown setting started")
	}
	if want := "no-such-setting"; !strings.Contains(err.Error(), want) {
		t.Errorf("the error does not show the log, which mentions %q: %v", want, err)
	}
	left, globErr := filepath.Glob(filepath.Join(os.TempDir(), "*"))
	if globErr != nil || len(left) > 0 {
		t.Errorf("left behind: %v (%v)", left, globErr)
	}
}

func TestStartRetriesWithAnotherPort(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	first := true
	unlucky := *Redis
	unlucky.Args = func(in Instance) []string {
		if first {
			first = false
			in.Port = taken.Addr().(*net.TCPAddr).Port
		}
		return Redis.Args(in)
	}
	s := Run(t, &unlucky)
	answers(t, s)
	if first {
		t.Error("the taken port was never tried")
	}
}

func TestURLUsesTheEnvironment(t *testing.T) {
	const want = "redis://db.example:6379/0"
	t.Setenv("DLOCK_TEST_REDIS", want)
	if got := URL(t, Redis); got != want {
		t.Errorf("URL is %s, want %s", got, want)
	}
}

func TestURLStartsAServerByDefault(t *testing.T) {
	t.Setenv("DLOCK_TEST_MEMCACHED", "")
	url := URL(t, Memcached)
	addr, ok := strings.CutPrefix(url, "memcached://")
	if !ok {
		t.Fatalf("URL is %q", url)
	}
	if err := Memcached.probe(t.Context(), addr); err != nil {
		t.Error(err)
	}
}

func TestExtraArgumentsOverrideTheKind(t *testing.T) {
	t.Parallel()
	s := Run(t, Redis, "--appendonly", "no")
	ask(t, s, "SET kept 1\r\n", "+OK")
	try(t, s.Kill)
	try(t, s.Restart)
	if got := ask(t, s, "EXISTS kept\r\n", ":"); got != ":0" {
		t.Errorf("EXISTS returned %s: the data survived without an append-only file", got)
	}
}

func TestArgumentsLimitTheMemoryOfRedis(t *testing.T) {
	t.Parallel()
	value := strings.Repeat("x", 100_000)
	fill := func(s *Server) error {
		conn, err := wire.Dial(limit(t), s.Addr())
		if err != nil {
			return err
		}
		defer conn.Close()
		c := wire.NewRedisConn(conn)
		for i := range 100 {
			if _, err := c.Call("SET", strconv.Itoa(i), value); err != nil {
				return err
			}
		}
		return nil
	}
	full := Run(t, Redis, "--maxmemory", "4mb", "--maxmemory-policy", "noeviction")
	if err := fill(full); err == nil || !strings.Contains(err.Error(), "OOM") {
		t.Errorf("10 MB into a server of 4 MB: %v, want OOM", err)
	}
	forgetful := Run(t, Redis, "--maxmemory", "4mb", "--maxmemory-policy", "allkeys-lru")
	if err := fill(forgetful); err != nil {
		t.Errorf("10 MB into a server that evicts: %v", err)
	}
	if got := ask(t, forgetful, "DBSIZE\r\n", ":"); got == ":100" {
		t.Error("all of 10 MB is still there in 4 MB")
	}
}

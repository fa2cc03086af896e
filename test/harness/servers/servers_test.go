package servers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock/test/harness/await"
	"github.com/dlock-go/dlock/test/harness/servers/internal/process"
	"github.com/dlock-go/dlock/test/harness/servers/internal/wire"
)

func try(t *testing.T, steps ...func() error) {
	t.Helper()
	for _, step := range steps {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
}

// limit returns a context that bounds the work of servers on a loaded machine.
func limit(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), await.Limit)
	t.Cleanup(cancel)
	return ctx
}

// left returns what is left of the servers in some folders.
func left(dirs ...string) (found []string) {
	for _, dir := range dirs {
		if _, err := os.Stat(dir); !os.IsNotExist(err) {
			found = append(found, fmt.Sprintf("the folder %s (%v)", dir, err))
		}
		if pids, err := process.Members(dir); err != nil || len(pids) > 0 {
			found = append(found, fmt.Sprintf("processes %v in %s (%v)", pids, dir, err))
		}
	}
	return found
}

func gone(t *testing.T, dirs ...string) {
	t.Helper()
	if found := left(dirs...); len(found) > 0 {
		t.Errorf("left: %q", found)
	}
}

func redisSays(t *testing.T, s *Server, command string) string {
	t.Helper()
	text, err := wire.RedisText(limit(t), s.Addr(), strings.Fields(command)...)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func sqlSays(t *testing.T, s *Server, statements string) string {
	t.Helper()
	text, err := s.SQL(limit(t), statements)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// subjects are kinds of servers, each with what writes and reads a value, and reads the clock.
var subjects = []struct {
	kind                *Kind
	ask                 func(t *testing.T, s *Server, question string) string
	write, read, stored string
	clock               string // empty if it cannot be moved
}{
	{Redis, redisSays, "SET kept 1", "EXISTS kept", "1", "TIME"},
	{MariaDB, sqlSays, "CREATE TABLE kept (id INT)", "SHOW TABLES LIKE 'kept'", "kept", "SELECT UNIX_TIMESTAMP(SYSDATE())"},
	{Postgres, sqlSays, "CREATE TABLE kept (id INT)", "SELECT to_regclass('kept') IS NOT NULL", "t", "SELECT extract(epoch FROM clock_timestamp())::bigint"},
}

func TestLifecycle(t *testing.T) {
	for _, sub := range subjects {
		t.Run(sub.kind.Name, func(t *testing.T) {
			t.Parallel()
			s := Run(t, sub.kind)
			addr := s.Addr()
			stored := func() bool { return sub.ask(t, s, sub.read) == sub.stored }
			answers := func() error { return s.WaitReady(limit(t)) }
			sub.ask(t, s, sub.write)
			try(t, s.Kill)
			if sub.kind.probe(t.Context(), addr) == nil || s.Pause() == nil {
				t.Fatal("a server that was killed answers, or is paused")
			}
			try(t, s.Restart, answers)
			if s.Addr() != addr || !stored() {
				t.Errorf("after Kill and Restart: address %s, was %s; the value is there: %t", s.Addr(), addr, stored())
			}
			try(t, s.Pause)
			err := sub.kind.probe(t.Context(), addr)
			if timeout, ok := errors.AsType[net.Error](err); !ok || !timeout.Timeout() {
				t.Errorf("a paused server should leave the client waiting, got: %v", err)
			}
			try(t, s.Resume, answers, s.RestartEmpty, answers)
			if stored() {
				t.Error("the value is still there after RestartEmpty")
			}
			try(t, s.Pause, s.Stop, s.Stop) // Stop copes with a paused server, and with one that was stopped
			gone(t, s.Dir())
			if conn, err := net.Dial("tcp", addr); err == nil {
				conn.Close()
				t.Errorf("something still listens on %s", addr)
			}
		})
	}
}

func TestClockMovesWhileServerRuns(t *testing.T) {
	for _, sub := range subjects {
		t.Run(sub.kind.Name, func(t *testing.T) {
			t.Parallel()
			s := Run(t, WithClock(sub.kind))
			expect := func(offset time.Duration) {
				t.Helper()
				const tolerance = 30 * time.Second // of a loaded machine
				seconds, _, _ := strings.Cut(sub.ask(t, s, sub.clock), "\n")
				n, err := strconv.ParseInt(seconds, 10, 64)
				if got := time.Until(time.Unix(n, 0)); err != nil || (got-offset).Abs() > tolerance {
					t.Errorf("the clock is off by %v, want %v (%v)", got, offset, err)
				}
			}
			expect(0)
			for _, offset := range []time.Duration{-time.Hour, 90 * time.Second, 0, time.Hour} {
				try(t, func() error { return s.SetClock(offset) })
				expect(offset)
			}
			try(t, s.Kill, s.Restart)
			expect(time.Hour)
			try(t, s.RestartEmpty)
			expect(time.Hour)
			pid := s.PID()
			try(t, s.Stop)
			if names, err := filepath.Glob(fmt.Sprintf("/dev/shm/*faketime*_%d", pid)); err != nil || len(names) > 0 {
				t.Errorf("%v is left in shared memory (%v)", names, err)
			}
			gone(t, s.Dir())
		})
	}
}

// TestGroupStartsAllOrNone: the servers that started beside one that failed are stopped.
func TestGroupStartsAllOrNone(t *testing.T) {
	t.Parallel()
	fails := errors.New("no third server")
	var dirs []string
	starting := make(chan *Server, 2)
	_, err := startEach(3, func(i int) (*Server, error) {
		if i == 2 {
			dirs = append(dirs, (<-starting).Dir(), (<-starting).Dir())
			return nil, fails
		}
		s, err := Start(Redis)
		starting <- s
		return s, err
	})
	if !errors.Is(err, fails) {
		t.Errorf("starting a group returned %v, want %v", err, fails)
	}
	gone(t, dirs...)
}

// TestPgBouncerSwapsConnections: a pool of one connection serves a second client between two transactions of
// the first, so that a store behind it cannot rely on its session.
func TestPgBouncerSwapsConnections(t *testing.T) {
	t.Parallel()
	postgres := Run(t, Postgres)
	pool := Run(t, PgBouncer(postgres, 1))
	first, second := sqlSays(t, pool, "SELECT pg_backend_pid()"), sqlSays(t, pool, "SELECT pg_backend_pid()")
	if first != second {
		t.Errorf("two clients of a pool of one connection are on backends %s and %s", first, second)
	}
}

// TestReplicaStopsWhileItWritesItsFirstFile: it would lose all its data, and must neither count as in sync
// nor wait for the file.
func TestReplicaStopsWhileItWritesItsFirstFile(t *testing.T) {
	t.Parallel()
	ctx := limit(t)
	master := Run(t, replicated(""))
	for key := range strings.FieldsSeq("a b c d e f g h i j k l m n o p q r s t u v w x y z") {
		redisSays(t, master, "SET "+key+" 1")
	}
	const secondPerKey = "1000000" // in microseconds
	replica := Run(t, replicated(master.Addr()), "--rdb-key-save-delay", secondPerKey)
	await.Until(t, "the replica writes its file", func() bool {
		return strings.Contains(redisSays(t, replica, "INFO"), "aof_rewrite_in_progress:1")
	})
	if err := follows(ctx, replica); err == nil {
		t.Error("follows accepts a replica that still writes its first file")
	}
	try(t, replica.Stop)
}

func TestMissingServerErrorExplainsInstallation(t *testing.T) {
	for _, binary := range []string{"no-such-server", "/nowhere/*/no-such-server"} {
		_, err := Start(&Kind{Name: "imaginary", Binary: binary})
		for _, want := range []string{"imaginary is not installed", "make servers", "DLOCK_TEST_IMAGINARY"} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v; want an error that mentions %q", binary, err, want)
			}
		}
	}
}

func TestFailedStartShowsTheLogAndLeavesNothing(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	if err := os.Chmod(filepath.Dir(os.TempDir()), 0o755); err != nil { // for the servers' user
		t.Fatal(err)
	}
	if _, err := Start(Redis, "--no-such-setting", "1"); err == nil || !strings.Contains(err.Error(), "no-such-setting") {
		t.Errorf("a server with an unknown setting: %v; want an error that shows the log", err)
	}
	if found, err := filepath.Glob(filepath.Join(os.TempDir(), "*")); err != nil || len(found) > 0 {
		t.Errorf("left behind: %v (%v)", found, err)
	}
}

func TestStartRetriesWithAnotherPort(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	tries := 0
	unlucky := *Redis
	unlucky.Args = func(in Instance) []string {
		if tries++; tries == 1 {
			in.Port = taken.Addr().(*net.TCPAddr).Port
		}
		return Redis.Args(in)
	}
	redisSays(t, Run(t, &unlucky), "PING")
	if tries != 2 {
		t.Errorf("%d tries; want a second one when the port is taken", tries)
	}
}

func TestURLUsesTheEnvironment(t *testing.T) {
	const want = "redis://db.example:6379/0"
	t.Setenv("DLOCK_TEST_REDIS", want)
	if got := URL(t, Redis); got != want {
		t.Errorf("URL is %s, want %s", got, want)
	}
}

package servers

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock/test/harness/servers/internal/process"
	"github.com/dlock-go/dlock/test/harness/servers/internal/wire"
)

// subject is a kind of server, with functions that write and read a value.
type subject struct {
	kind   *Kind
	keeps  bool // data survives SIGKILL and Restart
	write  func(t *testing.T, s *Server)
	stored func(t *testing.T, s *Server) bool
}

var subjects = []subject{
	{
		kind:  Redis,
		keeps: true,
		write: func(t *testing.T, s *Server) { ask(t, s, "SET kept 1\r\n", "+OK") },
		stored: func(t *testing.T, s *Server) bool {
			return ask(t, s, "EXISTS kept\r\n", ":") == ":1"
		},
	},
	{
		kind:  Memcached,
		write: func(t *testing.T, s *Server) { ask(t, s, "set kept 0 0 1\r\n1\r\n", "STORED") },
		stored: func(t *testing.T, s *Server) bool {
			return strings.HasPrefix(ask(t, s, "get kept\r\n", ""), "VALUE")
		},
	},
	{
		kind:  MariaDB,
		keeps: true,
		write: func(t *testing.T, s *Server) { sqlOf(t, s, "CREATE TABLE kept (id INT)") },
		stored: func(t *testing.T, s *Server) bool {
			return sqlOf(t, s, "SHOW TABLES LIKE 'kept'") == "kept"
		},
	},
	{
		kind:  Postgres,
		keeps: true,
		write: func(t *testing.T, s *Server) { sqlOf(t, s, "CREATE TABLE kept (id INT)") },
		stored: func(t *testing.T, s *Server) bool {
			return sqlOf(t, s, "SELECT to_regclass('kept') IS NOT NULL") == "t"
		},
	},
}

func TestLifecycle(t *testing.T) {
	for _, sub := range subjects {
		t.Run(sub.kind.Name, func(t *testing.T) {
			t.Parallel()
			s := Run(t, sub.kind)
			answers(t, s)
			addr := s.Addr()

			sub.write(t, s)
			if !sub.stored(t, s) {
				t.Fatal("the value is not there right after it was written")
			}

			try(t, s.Kill)
			if err := sub.kind.probe(t.Context(), addr); err == nil {
				t.Fatal("the server answers after Kill")
			}
			if err := s.Pause(); err == nil {
				t.Error("Pause of a killed server succeeded")
			}
			try(t, s.Restart)
			answers(t, s)
			if s.Addr() != addr {
				t.Errorf("address %s after Restart, was %s", s.Addr(), addr)
			}
			if got := sub.stored(t, s); got != sub.keeps {
				t.Errorf("value there after Kill and Restart: %v, want %v", got, sub.keeps)
			}

			try(t, s.Pause)
			err := sub.kind.probe(t.Context(), addr)
			if timeout, ok := errors.AsType[net.Error](err); !ok || !timeout.Timeout() {
				t.Errorf("a paused server should leave the client waiting, got: %v", err)
			}
			try(t, s.Resume)
			answers(t, s)

			sub.ensure(t, s)
			try(t, s.RestartEmpty)
			answers(t, s)
			if sub.stored(t, s) {
				t.Error("value still there after RestartEmpty")
			}

			try(t, s.Pause) // Stop copes with a paused server
			try(t, s.Stop)
			gone(t, s.Dir())
			if conn, err := net.Dial("tcp", addr); err == nil {
				conn.Close()
				t.Errorf("something still listens on %s", addr)
			}
			try(t, s.Stop)
		})
	}
}

// ensure writes the value unless it is there already.
func (sub subject) ensure(t *testing.T, s *Server) {
	t.Helper()
	if !sub.stored(t, s) {
		sub.write(t, s)
	}
}

func try(t *testing.T, do func() error) {
	t.Helper()
	if err := do(); err != nil {
		t.Fatal(err)
	}
}

func answers(t *testing.T, s *Server) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := s.WaitReady(ctx); err != nil {
		t.Fatal(err)
	}
}

// gone checks that nothing of the server is left.
func gone(t *testing.T, dir string) {
	t.Helper()
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("the folder %s is left (%v)", dir, err)
	}
	if pids, err := process.Members(dir); err != nil || len(pids) > 0 {
		t.Errorf("processes %v are left in %s (%v)", pids, dir, err)
	}
}

// ask sends one request and returns the first line of the answer.
func ask(t *testing.T, s *Server, request, wantPrefix string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	conn, err := wire.Dial(ctx, s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, request); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	line = strings.TrimSpace(line)
	if err != nil || !strings.HasPrefix(line, wantPrefix) {
		t.Fatalf("answer %q to %q (%v), want %q", line, request, err, wantPrefix)
	}
	return line
}

// sqlOf executes statements that have to succeed.
func sqlOf(t *testing.T, s *Server, statements string) string {
	t.Helper()
	out, err := s.SQL(limit(t), statements)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

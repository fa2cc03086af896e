package servers

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/dlock-go/dlock/test/harness/servers/internal/wire"
)

// Postgres has a database "postgres" and a superuser "postgres" without a
// password.
var Postgres = &Kind{
	Name:   "postgres",
	Binary: "/usr/lib/postgresql/*/bin/postgres",
	Init: func(in Instance) ([]Command, error) {
		return []Command{{
			filepath.Join(filepath.Dir(in.Binary), "initdb"), "--pgdata=" + in.Data,
			"--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C",
			"--no-sync", // the running server syncs what matters
		}}, nil
	},
	Args: func(in Instance) []string {
		return []string{
			"-D", in.Data,
			"-h", in.Host,
			"-p", strconv.Itoa(in.Port),
			"-k", "", // no socket in the file system
			"-c", "shared_buffers=32MB",
			"-c", "dynamic_shared_memory_type=mmap", // files in its folder, which are removed with it
		}
	},
	StopSignal: syscall.SIGINT, // fast shutdown: SIGTERM would wait for clients
	Probe:      probePostgres,
	URL: func(addr string) string {
		return "postgres://postgres@" + addr + "/postgres?sslmode=disable"
	},
	SQL: func(in Instance, statements string) Command {
		return Command{
			filepath.Join(filepath.Dir(in.Binary), "psql"), "--no-psqlrc", "--quiet", "--tuples-only", "--no-align",
			"--set=ON_ERROR_STOP=1", "--host=" + in.Host, "--port=" + strconv.Itoa(in.Port),
			"--username=postgres", "--command=" + statements, "postgres",
		}
	},
}

// probePostgres logs in. A server that starts, recovers or stops answers with an
// error. A server that is ready answers with an authentication message.
func probePostgres(ctx context.Context, addr string) error {
	conn, err := wire.Dial(ctx, addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	const protocol3 = 3 << 16
	body := binary.BigEndian.AppendUint32(nil, protocol3)
	body = append(body, "user\x00postgres\x00database\x00postgres\x00\x00"...)
	message := binary.BigEndian.AppendUint32(nil, uint32(4+len(body)))
	if _, err := conn.Write(append(message, body...)); err != nil {
		return err
	}
	var kind [1]byte
	if _, err := io.ReadFull(conn, kind[:]); err != nil {
		return fmt.Errorf("no answer to the startup message: %w", err)
	}
	if kind[0] != 'R' {
		return fmt.Errorf("answer %q to the startup message, want 'R'", kind[0])
	}
	return nil
}

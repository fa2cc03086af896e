package subjects

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/dlock-go/dlock/sqllock"
	"github.com/dlock-go/dlock/test/harness/servers"
)

// sqlKind is a kind of SQL server.
type sqlKind struct {
	dialect sqllock.Dialect
	server  *servers.Kind
	args    []string // of the server
	// connect returns a connector for a database.
	connect func(addr, database string) (driver.Connector, error)
	// empty recreates the database.
	empty []string
	// pidFile is where the server writes its process ID.
	pidFile string
	// count queries the number of statements so far; empty if the server does not
	// count them.
	count string

	// The server's own lock. The statements of a shared one are empty if there is none.
	nativeAcquire, nativeRelease string
	sharedAcquire, sharedRelease string
	nativeKey                    func(name string) any
}

// benchDatabase is the name of the database with the locks.
const benchDatabase = "bench"

// sqlServer is a server that runs for all rounds of a case.
type sqlServer struct {
	kind    *sqlKind
	server  *servers.Server
	control *sql.DB
}

func (k *sqlKind) serve(ctx context.Context) (Served, error) {
	server, err := servers.Start(k.server, k.args...)
	if err != nil {
		return nil, err
	}
	s := &sqlServer{kind: k, server: server}
	connector, err := k.connect(server.Addr(), "")
	if err == nil {
		s.control = newPool(connector)
		err = ctx.Err()
	}
	if err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return s, nil
}

func (s *sqlServer) Stop() error {
	var err error
	if s.control != nil {
		err = s.control.Close()
	}
	return errors.Join(err, s.server.Stop())
}

const sqlAddressFile = "sql.address"

func (s *sqlServer) Prepare(ctx context.Context, dir string) error {
	for _, text := range s.kind.empty {
		if _, err := s.control.ExecContext(ctx, text); err != nil {
			return fmt.Errorf("%s: %w", text, err)
		}
	}
	return os.WriteFile(filepath.Join(dir, sqlAddressFile), []byte(s.server.Addr()), 0o600)
}

// connector reads the file of prepare.
func (k *sqlKind) connector(dir string) (driver.Connector, error) {
	addr, err := os.ReadFile(filepath.Join(dir, sqlAddressFile))
	if err != nil {
		return nil, err
	}
	return k.connect(string(addr), benchDatabase)
}

// newPool keeps all connections open: subjects that need many would otherwise
// reconnect all the time.
func newPool(connector driver.Connector) *sql.DB {
	db := sql.OpenDB(connector)
	db.SetMaxIdleConns(200)
	return db
}

// open opens dlock's own store.
func (k *sqlKind) open(scheme string) opener {
	return func(dir string) (func(context.Context) (opened, error), error) {
		return func(ctx context.Context) (opened, error) {
			connector, err := k.connector(dir)
			if err != nil {
				return opened{}, err
			}
			db := newPool(connector)
			s, err := newSQLStore(ctx, db, k.dialect, scheme)
			if err != nil {
				return opened{}, errors.Join(err, db.Close())
			}
			return opened{s, db.Close}, nil
		}, nil
	}
}

// Listen observes nothing: all statements come from clients.
func (s *sqlServer) Listen(context.Context) (func() (map[string]float64, error), error) {
	if s.kind.count == "" {
		return nil, nil
	}
	return func() (map[string]float64, error) { return nil, nil }, nil
}

func (s *sqlServer) Done(ctx context.Context) (Work, error) {
	var name string
	var n uint64
	if err := s.control.QueryRowContext(ctx, s.kind.count).Scan(&name, &n); err != nil {
		return Work{}, err
	}
	content, err := os.ReadFile(filepath.Join(s.server.Dir(), s.kind.pidFile))
	if err != nil {
		return Work{}, err
	}
	cpu, err := cpuOf(strings.TrimSpace(string(content)))
	return Work{Commands: map[string]uint64{"statements": n}, CPU: cpu}, err
}

// cpuOf returns the CPU time of a process.
func cpuOf(pid string) (time.Duration, error) {
	content, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return 0, err
	}
	// The name of the program, in parentheses, may contain spaces.
	fields := strings.Fields(string(content[strings.LastIndexByte(string(content), ')')+1:]))
	const user, system, tick = 11, 12, 10 * time.Millisecond
	if len(fields) <= system {
		return 0, fmt.Errorf("/proc/%s/stat has %d fields", pid, len(fields))
	}
	var ticks int64
	for _, field := range []string{fields[user], fields[system]} {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, err
		}
		ticks += n
	}
	return time.Duration(ticks) * tick, nil
}

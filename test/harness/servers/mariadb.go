package servers

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"github.com/dlock-go/dlock/test/harness/servers/internal/wire"
)

// MariaDB has a database "dlock" and a user "dlock" with the password "dlock" and
// all rights, except writing to a read-only server.
var MariaDB = &Kind{
	Name:   "mariadb",
	Binary: "mariadbd",
	Init: func(in Instance) ([]Command, error) {
		// The server executes it at every start, because only the server can.
		const users = `CREATE DATABASE IF NOT EXISTS dlock;
CREATE USER IF NOT EXISTS 'dlock'@'%' IDENTIFIED BY 'dlock';
GRANT ALL ON *.* TO 'dlock'@'%' WITH GRANT OPTION;
REVOKE READ ONLY ADMIN ON *.* FROM 'dlock'@'%';
`
		if err := os.WriteFile(initFile(in), []byte(users), 0o644); err != nil { // the server's user reads it
			return nil, err
		}
		return []Command{{
			"mariadb-install-db", "--no-defaults", "--datadir=" + in.Data,
			"--auth-root-authentication-method=normal", "--skip-test-db", "--skip-name-resolve",
		}}, nil
	},
	Args: func(in Instance) []string {
		return []string{
			"--no-defaults",
			"--datadir=" + in.Data,
			"--bind-address=" + in.Host,
			"--port=" + strconv.Itoa(in.Port),
			"--socket=" + socket(in),
			"--pid-file=" + filepath.Join(in.Dir, "pid"),
			"--init-file=" + initFile(in),
			"--skip-name-resolve",
			"--innodb-buffer-pool-size=64M",
			"--innodb-log-file-size=16M",
		}
	},
	oneThread: []string{"--thread-handling=pool-of-threads", "--thread-pool-size=1", "--thread-pool-stall-limit=60000"},
	Probe:     probeMySQL,
	URL:       func(addr string) string { return "mysql://dlock:dlock@" + addr + "/dlock" },
	SQL: func(in Instance, statements string) Command {
		return Command{
			"mariadb", "--no-defaults", "--socket=" + socket(in), "--user=root",
			"--skip-column-names", "--batch", "--execute=" + statements, "dlock",
		}
	},
}

func socket(in Instance) string { return filepath.Join(in.Dir, "sock") }

func initFile(in Instance) string { return filepath.Join(in.Dir, "init.sql") }

// probeMySQL reads the greeting of a MySQL server: a header of four bytes and the
// version of the protocol, or 255 for an error.
func probeMySQL(ctx context.Context, addr string) error {
	conn, err := wire.Dial(ctx, addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	var greeting [5]byte
	if _, err := io.ReadFull(conn, greeting[:]); err != nil {
		return fmt.Errorf("no greeting: %w", err)
	}
	if version := greeting[4]; version != 10 {
		return fmt.Errorf("greeting of protocol version %d, want 10", version)
	}
	return nil
}

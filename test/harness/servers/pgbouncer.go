package servers

import (
	"fmt"
	"net"
	"path/filepath"
)

// PgBouncer returns a pool of that many connections to a PostgreSQL server, in
// transaction mode: a client has a connection during a transaction, and its next
// transaction may get another connection. The pool accepts the users of the
// server without a password. Prepared statements do not outlive a transaction.
func PgBouncer(postgres *Server, connections int) *Kind {
	file := func(in Instance) string { return filepath.Join(in.Dir, "pgbouncer.ini") }
	users := func(in Instance) string { return filepath.Join(in.Dir, "users.txt") }
	return &Kind{
		Name:   "pgbouncer",
		Binary: "pgbouncer",
		Configure: func(in Instance) error {
			host, port, err := net.SplitHostPort(postgres.Addr())
			if err != nil {
				return err
			}
			if err := writeOwned(users(in), `"postgres" ""`+"\n"); err != nil {
				return err
			}
			return writeOwned(file(in), fmt.Sprintf(`[databases]
* = host=%s port=%s

[pgbouncer]
pool_mode = transaction
default_pool_size = %d
max_client_conn = 1000
listen_addr = %s
listen_port = %d
unix_socket_dir =
auth_type = trust
auth_file = %s
auth_user = postgres
admin_users = postgres
`, host, port, connections, in.Host, in.Port, users(in)))
		},
		Args:  func(in Instance) []string { return []string{file(in)} },
		Probe: probePostgres,
		URL:   Postgres.URL,
		SQL: func(in Instance, statements string) Command {
			in.Binary = postgres.in.Binary // psql is in the same folder
			return Postgres.SQL(in, statements)
		},
	}
}

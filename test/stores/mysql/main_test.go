// Package mysql tests sqllock on MariaDB. MySQL itself is not tested: Debian does
// not have it.
package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/dlock-go/dlock/sqllock"
	"github.com/dlock-go/dlock/test/harness/servers"
	"github.com/dlock-go/dlock/test/stores/sqlrig"
	"github.com/go-sql-driver/mysql"
)

const now = `CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000 AS SIGNED)`

var database = &sqlrig.Database{
	Kind:             servers.MariaDB,
	Args:             []string{"--max-connections=400"},
	Pair:             servers.RunMariaDBPair,
	Dialect:          sqllock.MySQL,
	Open:             open,
	Held:             `SELECT name FROM dlock_locks WHERE owner IS NOT NULL AND expires > ` + now,
	Queued:           `SELECT name FROM dlock_queue WHERE expires > ` + now,
	Free:             `UPDATE dlock_locks SET owner = NULL WHERE name = ?`,
	CountConnections: connections,
	Statements:       statements,
	// Not from innodb_trx, which answers the same when it is asked again too soon.
	Blocked: `SELECT COUNT(*) FROM information_schema.processlist WHERE db = DATABASE() AND state IN ('Updating', 'Sending data') AND info LIKE '%UPDATE %'`,
	Kill:    kill,
	CreateUser: func(ctx context.Context, admin *sql.DB, user, password string) error {
		_, err := admin.ExecContext(ctx, fmt.Sprintf("CREATE USER %s@'%%' IDENTIFIED BY '%s'", user, password))
		return err
	},
	Grant: func(ctx context.Context, admin *sql.DB, user, rights string) error {
		var name string
		if err := admin.QueryRowContext(ctx, "SELECT DATABASE()").Scan(&name); err != nil {
			return err
		}
		_, err := admin.ExecContext(ctx, fmt.Sprintf("GRANT %s ON %s.* TO %s@'%%'", rights, name, user))
		return err
	},
	Impatient: "wait_timeout=1",
	Isolations: []string{
		"tx_isolation=%27SERIALIZABLE%27&innodb_lock_wait_timeout=1", "tx_isolation=%27READ-UNCOMMITTED%27", "",
	},
}

func TestMain(m *testing.M) { database.Main(m) }

func open(at *url.URL) (*sql.DB, error) {
	config, err := mysql.ParseDSN("/?" + strings.ReplaceAll(at.RawQuery, "/", "%2F"))
	if err != nil {
		return nil, err
	}
	config.User = at.User.Username()
	config.Passwd, _ = at.User.Password()
	config.Net, config.Addr, config.DBName = "tcp", at.Host, strings.TrimPrefix(at.Path, "/")
	config.Logger = &mysql.NopLogger{} // these tests make it complain
	connector, err := mysql.NewConnector(config)
	if err != nil {
		return nil, err
	}
	return sql.OpenDB(connector), nil
}

func connections(ctx context.Context, admin *sql.DB, user string) (n int, err error) {
	err = admin.QueryRowContext(ctx, "SELECT COUNT(*) FROM information_schema.processlist WHERE user = ?", user).Scan(&n)
	return n, err
}

func statements(ctx context.Context, admin *sql.DB) (n int64, err error) {
	var name string
	err = admin.QueryRowContext(ctx, "SHOW GLOBAL STATUS LIKE 'Questions'").Scan(&name, &n)
	return n, err
}

func kill(ctx context.Context, admin *sql.DB) error {
	rows, err := admin.QueryContext(ctx, "SELECT id FROM information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID()")
	if err != nil {
		return err
	}
	defer rows.Close()
	var ids []int64
	for rows.Next() {
		var id int64
		if err := rows.Scan(&id); err != nil {
			return err
		}
		ids = append(ids, id)
	}
	if err := rows.Err(); err != nil {
		return err
	}
	for _, id := range ids {
		var gone *mysql.MySQLError
		const unknownThread = 1094
		if _, err := admin.ExecContext(ctx, fmt.Sprintf("KILL %d", id)); err != nil && !(errors.As(err, &gone) && gone.Number == unknownThread) {
			return err
		}
	}
	return nil
}

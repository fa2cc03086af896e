package subjects

import (
	"cmp"
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"hash/fnv"
	"sync/atomic"

	"github.com/dlock-go/dlock/sqllock"
	"github.com/dlock-go/dlock/sqlsession"
	"github.com/dlock-go/dlock/test/harness/servers"
	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
)

// sqlKind is a kind of SQL server.
type sqlKind struct {
	dialect sqllock.Dialect
	server  *servers.Kind
	args    []string // of the server
	// connect returns a connector for a database.
	connect func(addr, database string) (sqldriver.Connector, error)
	// empty recreates the database.
	empty []string
	// count queries the number of statements so far; empty if the server does not
	// count them.
	count string

	// The server's own lock, and the shared one if it has one.
	native, nativeShared lockStatements
	nativeKey            func(name string) any
}

// benchDatabase is the name of the database with the locks.
const benchDatabase = "bench"

// The disk would hide the differences between the subjects: both kinds of servers
// do not sync it.
var (
	mariadb = &sqlKind{
		dialect:   sqllock.MySQL,
		server:    servers.MariaDB,
		args:      []string{"--innodb-flush-log-at-trx-commit=0", "--max-connections=1000"},
		connect:   connectMySQL,
		empty:     []string{"DROP DATABASE IF EXISTS " + benchDatabase, "CREATE DATABASE " + benchDatabase},
		count:     "SHOW GLOBAL STATUS LIKE 'Questions'",
		native:    lockStatements{"SELECT GET_LOCK(?, 3600)", "SELECT RELEASE_LOCK(?)"},
		nativeKey: func(name string) any { return name },
	}
	postgres = &sqlKind{
		dialect: sqllock.Postgres,
		server:  servers.Postgres,
		args:    []string{"-c", "fsync=off", "-c", "synchronous_commit=off", "-c", "max_connections=400"},
		connect: connectPostgres,
		empty:   []string{"DROP DATABASE IF EXISTS " + benchDatabase + " WITH (FORCE)", "CREATE DATABASE " + benchDatabase},
		native:  lockStatements{"SELECT pg_advisory_lock($1) IS NOT NULL", "SELECT pg_advisory_unlock($1)"},
		nativeShared: lockStatements{
			"SELECT pg_advisory_lock_shared($1) IS NOT NULL", "SELECT pg_advisory_unlock_shared($1)",
		},
		nativeKey: hashed,
	}
)

const (
	mysqlURL    = "mysql://dlock:dlock@SERVER/" + benchDatabase
	postgresURL = "postgres://postgres@SERVER/" + benchDatabase + "?sslmode=disable"
)

var (
	openMySQL    = byURL(sqllock.Open, mysqlURL, nil)
	openPostgres = byURL(sqllock.Open, postgresURL, nil)
	// Each goroutine keeps a connection, as with the server's own locks.
	forUpdate = &sqlsession.Options{MaxConns: maxConns}
)

var mysqlStore = Store{
	Name:      "mysql",
	Open:      openMySQL,
	Serve:     mariadb.serve,
	Processes: true,
	Held:      2_000,
	Subjects: []Subject{
		{Name: "raw", Open: mariadb.openRaw},
		{Name: "get_lock", Open: mariadb.openNative},
		direct("store", openMySQL, millisecond).only("solo", "many"),
		library("dlock", openMySQL).modes(),
		library("dlock", openMySQL).modes().exclusive(),
		library("dlock/version", byURL(sqllock.Open, mysqlURL+"?scheme=version", nil)),
		library("dlock/session", byURL(sqlsession.Open, mysqlURL+"?scheme=session", nil)),
		library("dlock/forupdate", byURL(sqlsession.Open, mysqlURL+"?scheme=forupdate", forUpdate)),
	},
}

var postgresStore = Store{
	Name:      "postgres",
	Open:      openPostgres,
	Serve:     postgres.serve,
	Processes: true,
	Held:      2_000,
	Subjects: []Subject{
		{Name: "raw", Open: postgres.openRaw},
		Subject{Name: "advisory", Open: postgres.openNative}.shared(),
		direct("store", openPostgres, millisecond).only("solo", "many"),
		library("dlock", openPostgres).modes(),
		library("dlock", openPostgres).modes().exclusive(),
		library("dlock/version", byURL(sqllock.Open, postgresURL+"&scheme=version", nil)),
		library("dlock/session", byURL(sqlsession.Open, postgresURL+"&scheme=session", nil)).shared(),
		library("dlock/session", byURL(sqlsession.Open, postgresURL+"&scheme=session", nil)).shared().exclusive(),
		library("dlock/forupdate", byURL(sqlsession.Open, postgresURL+"&scheme=forupdate", forUpdate)),
	},
}

func connectMySQL(addr, database string) (sqldriver.Connector, error) {
	config := mysql.NewConfig()
	config.User, config.Passwd, config.Net, config.Addr, config.DBName = "dlock", "dlock", "tcp", addr, database
	config.Logger = &mysql.NopLogger{} // a cancelled wait breaks a connection
	return mysql.NewConnector(config)
}

func connectPostgres(addr, database string) (sqldriver.Connector, error) {
	config, err := pgx.ParseConfig("postgres://postgres@" + addr + "/" + cmp.Or(database, "postgres") + "?sslmode=disable")
	if err != nil {
		return nil, err
	}
	return stdlib.GetConnector(*config), nil
}

// hashed returns the hash of a name, since an advisory lock has a number instead
// of a name.
func hashed(name string) any {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name)) // never fails
	return int64(h.Sum64())
}

func (k *sqlKind) serve(context.Context) (*Servers, error) {
	s, err := start(k.server, 1, k.args...)
	if err != nil {
		return nil, err
	}
	control, err := k.pool(s.Addrs()[0], "")
	if err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	s.disconnect = control.Close
	s.Empty = func(ctx context.Context) error {
		for _, text := range k.empty {
			if _, err := control.ExecContext(ctx, text); err != nil {
				return err
			}
		}
		return nil
	}
	if k.count != "" {
		s.count = func(ctx context.Context) (map[string]uint64, error) {
			var name string
			var n uint64
			err := control.QueryRowContext(ctx, k.count).Scan(&name, &n)
			return map[string]uint64{name: n}, err
		}
	}
	return s, nil
}

// maxConns keeps all connections open: subjects that need many would otherwise
// reconnect all the time.
const maxConns = 200

func (k *sqlKind) pool(addr, database string) (*sql.DB, error) {
	connector, err := k.connect(addr, database)
	if err != nil {
		return nil, err
	}
	return pooled(connector), nil
}

func pooled(connector sqldriver.Connector) *sql.DB {
	db := sql.OpenDB(connector)
	db.SetMaxIdleConns(maxConns)
	return db
}

// lockStatements acquire and release the server's own lock.
type lockStatements struct{ acquire, release string }

// openNative opens the server's own lock, as a program would use it: GET_LOCK, or
// an advisory lock. Every goroutine has a connection, on which it waits.
func (k *sqlKind) openNative(_ context.Context, at Place) (*Client, error) {
	db, err := k.pool(at.Addrs[0], benchDatabase)
	if err != nil {
		return nil, err
	}
	var sent atomic.Uint64
	newWorker := func(ctx context.Context, want Want) (Worker, error) {
		texts, key := k.native, k.nativeKey(want.Name)
		if want.Shared {
			texts = k.nativeShared
		}
		conn, err := db.Conn(ctx)
		if err != nil {
			return Worker{}, err
		}
		ask := func(text string) func(context.Context) error {
			stmt, prepareErr := conn.PrepareContext(ctx, text)
			err = errors.Join(err, prepareErr)
			return func(ctx context.Context) error {
				sent.Add(1)
				var answer sql.NullBool
				err := stmt.QueryRowContext(ctx, key).Scan(&answer)
				if err == nil && !answer.Bool {
					err = errors.New("the server did not grant the lock")
				}
				return err
			}
		}
		w := Worker{ask(texts.acquire), ask(texts.release)}
		return w, err
	}
	return &Client{newWorker, sent.Load, db.Close}, nil
}

package subjects

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/sqllock"
	"github.com/dlock-go/dlock/sqlsession"
	"github.com/dlock-go/dlock/test/harness/servers"
	"github.com/go-sql-driver/mysql"
)

var mariadb = &sqlKind{
	dialect: sqllock.MySQL,
	server:  servers.MariaDB,
	// The disk would hide the differences between the subjects.
	args:          []string{"--innodb-flush-log-at-trx-commit=0", "--max-connections=1000"},
	connect:       connectMySQL,
	empty:         []string{"DROP DATABASE IF EXISTS " + benchDatabase, "CREATE DATABASE " + benchDatabase},
	pidFile:       "pid",
	count:         "SHOW GLOBAL STATUS LIKE 'Questions'",
	nativeAcquire: "SELECT GET_LOCK(?, 3600)",
	nativeRelease: "SELECT RELEASE_LOCK(?)",
	nativeKey:     func(name string) any { return name },
}

var mysqlStore = Store{
	Name:      "mysql",
	Open:      mariadb.open("row"),
	Serve:     mariadb.serve,
	Processes: true,
	Held:      2_000,
	Subjects: []Subject{
		{Name: "raw", Open: openRawSQL(mariadb)},
		{Name: "get_lock", Open: openNativeSQL(mariadb)},
		direct("store", mariadb.open("row"), millisecond).only("solo", "many"),
		library("dlock", mariadb.open("row")).modes(),
		library("dlock", mariadb.open("row")).modes().exclusive(),
		library("dlock/version", mariadb.open("version")),
		library("dlock/session", mariadb.open("session")),
		library("dlock/forupdate", mariadb.open("forupdate")),
	},
}

func connectMySQL(addr, database string) (sqldriver.Connector, error) {
	config := mysql.NewConfig()
	config.User, config.Passwd, config.Net, config.Addr, config.DBName = "dlock", "dlock", "tcp", addr, database
	config.Logger = &mysql.NopLogger{} // a cancelled wait breaks a connection
	return mysql.NewConnector(config)
}

// newSQLStore opens a store of any scheme.
func newSQLStore(ctx context.Context, db *sql.DB, dialect sqllock.Dialect, scheme string) (driver.Store, error) {
	if bound, err := sqlsession.ParseScheme(scheme); err == nil {
		return sqlsession.New(ctx, db, &sqlsession.Options{Dialect: dialect, Scheme: bound})
	}
	row, err := sqllock.ParseScheme(scheme)
	if err != nil {
		return nil, err
	}
	return sqllock.New(ctx, db, &sqllock.Options{Dialect: dialect, Scheme: row})
}

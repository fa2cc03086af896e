package subjects

import (
	"cmp"
	sqldriver "database/sql/driver"

	"github.com/dlock-go/dlock/sqllock"
	"github.com/dlock-go/dlock/test/harness/servers"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
)

var postgres = &sqlKind{
	dialect: sqllock.Postgres,
	server:  servers.Postgres,
	// The disk would hide the differences between the subjects.
	args:          []string{"-c", "fsync=off", "-c", "synchronous_commit=off", "-c", "max_connections=400"},
	connect:       connectPostgres,
	empty:         []string{"DROP DATABASE IF EXISTS " + benchDatabase + " WITH (FORCE)", "CREATE DATABASE " + benchDatabase},
	nativeAcquire: "SELECT pg_advisory_lock($1) IS NOT NULL",
	nativeRelease: "SELECT pg_advisory_unlock($1)",
	sharedAcquire: "SELECT pg_advisory_lock_shared($1) IS NOT NULL",
	sharedRelease: "SELECT pg_advisory_unlock_shared($1)",
	nativeKey:     hashed,
}

var postgresStore = Store{
	Name:      "postgres",
	Open:      postgres.open("row"),
	Serve:     postgres.serve,
	Processes: true,
	Held:      2_000,
	Subjects: []Subject{
		{Name: "raw", Open: openRawSQL(postgres)},
		Subject{Name: "advisory", Open: openNativeSQL(postgres)}.shared(),
		direct("store", postgres.open("row"), millisecond).only("solo", "many"),
		library("dlock", postgres.open("row")).modes(),
		library("dlock", postgres.open("row")).modes().exclusive(),
		library("dlock/version", postgres.open("version")),
		library("dlock/session", postgres.open("session")).shared(),
		library("dlock/session", postgres.open("session")).shared().exclusive(),
		library("dlock/forupdate", postgres.open("forupdate")),
	},
}

func connectPostgres(addr, database string) (sqldriver.Connector, error) {
	config, err := pgx.ParseConfig("postgres://postgres@" + addr + "/" + cmp.Or(database, "postgres") + "?sslmode=disable")
	if err != nil {
		return nil, err
	}
	return stdlib.GetConnector(*config), nil
}

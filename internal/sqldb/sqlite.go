package sqldb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/dlock-go/dlock/driver"
)

var sqliteFacts = Facts{Dialect: SQLite, Now: sqliteNow, Bind: numbered, Classify: classifySQLite}

// sqliteNow is the database's clock. It has milliseconds; adding a half makes
// the product exact where the fraction is not.
const sqliteNow = `CAST(unixepoch('subsec') * 1000 + 0.5 AS INTEGER)`

// sqliteFailures is keyed by result codes. The upper bits of an extended code only refine it.
var sqliteFailures = map[int]Failure{
	1:          {Missing: true}, // SQLITE_ERROR
	5:          {Retry: true, Meaning: "another program keeps the database locked"},
	6:          {Retry: true, Meaning: "another connection keeps the database locked"},
	8:          {Access: true, Meaning: "the file or its folder cannot be written", Kind: driver.ErrDenied},
	10:         {Meaning: "reading or writing the file failed", Kind: driver.ErrMisconfigured},
	10 | 19<<8: {Meaning: "the disk is full", Kind: driver.ErrMisconfigured}, // the file -shm cannot grow
	11:         {Meaning: "the database is damaged", Kind: driver.ErrMisconfigured},
	13:         {Meaning: "the disk is full", Kind: driver.ErrMisconfigured},
	14:         {Access: true, Meaning: "the file or its folder is missing, read-only or not accessible", Kind: driver.ErrMisconfigured},
	15:         {Retry: true, Meaning: "too many processes are opening the database"},
	19 | 5<<8:  {Number: true, Kind: driver.ErrMisconfigured}, // NOT NULL: see sqllock/internal/statement
	26:         {Meaning: "the file is not an SQLite database", Kind: driver.ErrMisconfigured},
}

// SQLiteLocks reports whether a connection to the file keeps another one from writing. It does not with
// nolock=1 or the VFS unix-none in the data source name. tested is false if there is no second connection.
func SQLiteLocks(ctx context.Context, db *sql.DB) (locks, tested bool) {
	const limit = time.Second // the program may use all connections, or share one cache among them
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	if db.Stats().MaxOpenConnections == 1 {
		return true, false
	}
	end := context.WithoutCancel(ctx) // or the program would get a connection in a transaction
	var conns []*sql.Conn
	for range 2 { // both come before a transaction, which keeps other programs waiting
		conn, err := db.Conn(ctx)
		if err != nil {
			return true, false
		}
		defer conn.Close()
		conns = append(conns, conn)
	}
	for _, conn := range conns {
		var busyTimeout int
		err := conn.QueryRowContext(ctx, `PRAGMA busy_timeout`).Scan(&busyTimeout)
		if err == nil {
			defer func() { _, _ = conn.ExecContext(end, fmt.Sprintf(`PRAGMA busy_timeout = %d`, busyTimeout)) }()
			_, err = conn.ExecContext(ctx, `PRAGMA busy_timeout = 0`)
		}
		if err == nil {
			defer func() { _, _ = conn.ExecContext(end, `ROLLBACK`) }()
			_, err = conn.ExecContext(ctx, `BEGIN IMMEDIATE`)
		}
		if err != nil { // locked out, as it should be, or not able to write
			return true, true
		}
	}
	return false, true
}

func classifySQLite(err error) Failure {
	type codeError interface {
		error
		Code() int
	}
	coded, ok := errors.AsType[codeError](err)
	if !ok {
		return Failure{}
	}
	if failure, ok := sqliteFailures[coded.Code()]; ok {
		return failure
	}
	return sqliteFailures[coded.Code()&0xff]
}

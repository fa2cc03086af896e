package sqldb

import (
	"errors"

	"github.com/dlock-go/dlock/driver"
)

var sqliteFacts = Facts{Dialect: SQLite, Now: sqliteNow, Bind: numbered, Classify: classifySQLite}

// sqliteNow is the database's clock. It has milliseconds; adding a half makes
// the product exact where the fraction is not.
const sqliteNow = `CAST(unixepoch('subsec') * 1000 + 0.5 AS INTEGER)`

// The result codes of SQLite that mean something to the store; the upper bits
// of an extended code only refine them.
const (
	sqliteError    = 1
	sqliteBusy     = 5
	sqliteLocked   = 6
	sqliteReadOnly = 8
	sqliteIOError  = 10
	sqliteCorrupt  = 11
	sqliteFull     = 13
	sqliteCantOpen = 14
	sqliteProtocol = 15
	sqliteNotADB   = 26

	sqliteSharedMemorySize = sqliteIOError | 19<<8 // the file -shm cannot grow
)

var sqliteFailures = map[int]Failure{
	sqliteError:    {Missing: true},
	sqliteBusy:     {Retry: true, Meaning: "another program keeps the database locked"},
	sqliteLocked:   {Retry: true, Meaning: "another connection keeps the database locked"},
	sqliteProtocol: {Retry: true, Meaning: "too many processes are opening the database"},
	sqliteReadOnly: {Meaning: "the file or its folder cannot be written", Kind: driver.ErrDenied},
	sqliteIOError:  {Meaning: "reading or writing the file failed", Kind: driver.ErrMisconfigured},
	sqliteCorrupt:  {Meaning: "the database is damaged", Kind: driver.ErrMisconfigured},
	sqliteFull:     sqliteDiskFull,
	sqliteCantOpen: {Meaning: "the file or its folder is missing, read-only or not accessible", Kind: driver.ErrMisconfigured},
	sqliteNotADB:   {Meaning: "the file is not an SQLite database", Kind: driver.ErrMisconfigured},

	sqliteSharedMemorySize: sqliteDiskFull,
}

var sqliteDiskFull = Failure{Meaning: "the disk is full", Kind: driver.ErrMisconfigured}

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

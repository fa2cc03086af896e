package sqldb

import (
	"errors"

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

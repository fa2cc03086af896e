package sqlsession

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/dlock-go/dlock/internal/backoff"
	"github.com/dlock-go/dlock/internal/sqldb"
)

// Tokens of Session on MySQL and MariaDB come from UUID_SHORT(), which counts in
// the server's memory and costs nothing: a counter that begins at the second in
// which the server was started, times 2^24. What would write each token to the
// disk costs many times what the lock does, and a SEQUENCE of MariaDB 10.11 goes
// back when the server crashes.
//
// So that tokens rise although the server was started again:
//   - None is drawn in the very second of the start, so that the next start is in
//     a later one.
//   - A clock that was set back before the start shows when a connection is
//     opened: a row has the largest number that was seen so far. What is missing
//     is added to all numbers from then on, and kept in the same row.

// mysqlDraw draws a number. The highest byte is the server's, and of no use.
const mysqlDraw = `CAST(UUID_SHORT() & 0xffffffffffffff AS SIGNED)`

const (
	// mysqlLeap is larger than the count of numbers that any server draws.
	mysqlLeap = 1 << 44
	// startLimit is how long to wait for the second of the start to be over. A
	// clock that was set back would let it take for ever.
	startLimit = 1500 * time.Millisecond
)

// startMySQLTokens draws a number and adds what is missing. It draws while the row is
// locked, so that connections that open together get rising numbers. The
// server ends the transaction of a process that is stopped or vanishes in the middle,
// or nobody else could open a connection.
func startMySQLTokens(ctx context.Context, conn *sql.Conn, server *server) (shift uint64, err error) {
	if err := awaitMySQLStart(ctx, conn); err != nil {
		return 0, err
	}
	if err := execAll(ctx, conn, `INSERT IGNORE INTO `+server.fence+` (id, seen, shift) VALUES (1, 0, 0)`, sqldb.MySQLGuard, `START TRANSACTION`); err != nil {
		return 0, err
	}
	var seen, last uint64
	if err := conn.QueryRowContext(ctx, `SELECT seen, shift FROM `+server.fence+` WHERE id = 1 FOR UPDATE`).Scan(&last, &shift); err != nil {
		return 0, err
	}
	if err := conn.QueryRowContext(ctx, `SELECT `+mysqlDraw).Scan(&seen); err != nil {
		return 0, err
	}
	if seen <= last {
		shift += last - seen + mysqlLeap
	}
	return shift, execAll(ctx, conn,
		fmt.Sprintf(`UPDATE %s SET seen = %d, shift = %d WHERE id = 1`, server.fence, seen, shift),
		`COMMIT`, sqldb.MySQLUnguard,
	)
}

// awaitMySQLStart waits until the second in which the server was started is over.
func awaitMySQLStart(ctx context.Context, conn *sql.Conn) error {
	for limit := time.Now().Add(startLimit); ; {
		var name string
		var uptime int64
		if err := conn.QueryRowContext(ctx, `SHOW GLOBAL STATUS LIKE 'Uptime'`).Scan(&name, &uptime); err != nil {
			return err
		}
		if uptime > 0 || time.Now().After(limit) {
			return nil
		}
		if err := backoff.Sleep(ctx, startLimit/10); err != nil {
			return err
		}
	}
}

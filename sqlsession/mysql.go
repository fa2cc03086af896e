package sqlsession

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/backoff"
	"github.com/dlock-go/dlock/internal/finding"
	"github.com/dlock-go/dlock/internal/sqldb"
)

var mysqlDialect = dialect{
	createFence: `CREATE TABLE IF NOT EXISTS {fence} (
	id TINYINT NOT NULL PRIMARY KEY,
	seen BIGINT NOT NULL,
	shift BIGINT NOT NULL
) ENGINE=InnoDB`,
	createBound: `CREATE TABLE IF NOT EXISTS {bound} (
	k CHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY,
	name VARBINARY(255) NOT NULL,
	token BIGINT NOT NULL,
	used BIGINT NOT NULL,
	holder BLOB
) ENGINE=InnoDB`,
	insertFloor: `INSERT IGNORE INTO {bound} (k, name, token, used) VALUES ('` + floorKey + `', '', 0, {now})`,
	home:        `SELECT DATABASE()`, // the server looks for tables in no other
	keyOf:       mysqlKey,
	examine:     examineMySQL,
	checks: []func(context.Context, sqldb.Queryer) (driver.Finding, error){sqldb.MySQLServer, tokenDurability.MySQL,
		tokenDurability.MySQLReplicas, sqldb.MySQLEncryption, checkGalera},
	startTokens:    startMySQLTokens,
	setFingerprint: setMySQLFingerprint,
	raiseToken:     raiseMySQLToken,
	lockRow:        lockMySQLRow,
}

// mysqlVariables reads what the store has to know about the server.
const mysqlVariables = `SHOW SESSION VARIABLES WHERE Variable_name IN ('version', 'wait_timeout', 'idle_transaction_timeout',
'idle_write_transaction_timeout', 'idle_readonly_transaction_timeout', 'innodb_lock_wait_timeout')`

// mysqlSession is the id of the session, or readOnlySession: a primary that becomes a replica
// keeps its connections and their locks.
const mysqlSession = `IF(` + sqldb.MySQLWritable + `, CONNECTION_ID(), ` + readOnlySession + `)`

func examineMySQL(ctx context.Context, conn *sql.Conn, facts *sqldb.Facts, t *sqldb.Tables) (*server, error) {
	variables, err := readSettings(ctx, conn, mysqlVariables)
	if err != nil {
		return nil, err
	}
	if err := sqldb.CheckMySQL(ctx, conn); err != nil {
		return nil, err
	}
	version := variables["version"]
	mariadb := strings.Contains(version, "MariaDB")
	var major, minor int
	if _, err := fmt.Sscanf(version, "%d.%d", &major, &minor); err != nil {
		return nil, fmt.Errorf("unknown version %q: %w", version, err)
	}
	if mariadb && (major < 10 || major == 10 && minor < 6) || !mariadb && major < 8 {
		return nil, fmt.Errorf("%w: version %s: MySQL 8 or MariaDB 10.6 is needed", driver.ErrUnsupported, version)
	}
	server := &server{
		identity:    `SELECT ` + mysqlSession,
		releaseAll:  []string{`ROLLBACK`, `DO RELEASE_ALL_LOCKS()`},
		findSession: `SELECT IS_USED_LOCK('{fingerprint}') IS NOT NULL`,
		killSession: `KILL CONNECTION {id}`, // over the connection that found it: the server was not restarted in between
		texts: sessionTexts{
			stmtAcquire:  fmt.Sprintf(`SELECT IF(%s, IF(GET_LOCK(?, 0) = 1, %s, 0), %d)`, sqldb.MySQLWritable, mysqlDraw, answerReadOnly),
			stmtRelease:  `DO RELEASE_LOCK(?)`,
			stmtFindFree: `SELECT i FROM JSON_TABLE(?, '$[*]' COLUMNS (i FOR ORDINALITY, k VARCHAR(64) PATH '$')) AS watched WHERE IS_FREE_LOCK(k) = 1` + sqldb.MySQLAllRows,
		},
		readRow:   facts.Bind(t.Expand(facts.Now, `SELECT token, holder, IS_FREE_LOCK(?2) = 0 FROM {bound} WHERE k = ?1`)),
		limitIdle: sqldb.MySQLLimitIdle, unlimitIdle: sqldb.MySQLUnlimitIdle,
		unlockKey: `DO RELEASE_LOCK('%s'), RELEASE_LOCK('%s')`,
	}
	addMySQLSettings(server, variables, mariadb)
	return server, nil
}

// addMySQLSettings keeps the server from closing connections that idle. The store uses a
// connection with locks once a second, which is enough for longer timeouts.
func addMySQLSettings(server *server, variables map[string]string, mariadb bool) {
	set := func(name, value string) {
		server.settings = append(server.settings, fmt.Sprintf("SET SESSION %s = %s", name, value))
		server.restore = append(server.restore, fmt.Sprintf("SET SESSION %s = %s", name, variables[name]))
	}
	for name, long := range map[string]string{
		"wait_timeout": "28800", "idle_transaction_timeout": "0", "idle_write_transaction_timeout": "0", "idle_readonly_transaction_timeout": "0",
	} {
		seconds, _ := strconv.ParseInt(variables[name], 10, 64) // a variable that is missing is no timeout
		if isShort(time.Duration(seconds) * time.Second) {
			set(name, long)
		}
	}
	if mariadb {
		server.noWait = `SET STATEMENT innodb_lock_wait_timeout = 0 FOR `
	} else { // it always waits for a row that another transaction inserts
		set("innodb_lock_wait_timeout", "1")
	}
}

// mysqlKey returns the key of a lock for GET_LOCK, which takes 64 characters. Whether their case
// matters depends on the version: keys of different names differ in more than case.
func mysqlKey(sum [sha256.Size]byte) any { return "dlock_" + hex.EncodeToString(sum[:20]) }

// raiseMySQLToken implements dialect.raiseToken. The statements contain their values, because
// parameters would double the round trips. Each is a transaction of its own, so that a process
// that stops keeps no row locked. Reading comes first, because locking a row that does not
// exist would lock the gap for other rows.
func raiseMySQLToken(ctx context.Context, s *Store, c *conn, h *heldLock) (uint64, error) {
	c.fingerprint = cmp.Or(c.fingerprint, newMySQLFingerprint())
	find := fmt.Sprintf(`SELECT token FROM %s WHERE k = '%s'`, s.tables.Bound, h.key.row)
	var last sql.NullInt64
	var marked bool
	err := c.raw.QueryRowContext(ctx, fmt.Sprintf(`SELECT (%s), COALESCE(IS_USED_LOCK('%[2]s') = CONNECTION_ID(), GET_LOCK('%[2]s', 0)), CONNECTION_ID()`,
		find, c.fingerprint)).Scan(&last, &marked, &c.id)
	switch {
	case err != nil:
		return 0, err
	case !last.Valid:
		return 0, insertMySQLRow(ctx, s, c.raw, h)
	}
	// MySQL has no limit for a statement that is as short as NOWAIT.
	if err := c.raw.QueryRowContext(ctx, find+` FOR UPDATE NOWAIT`).Scan(&last); err != nil {
		return 0, mysqlLocked(err)
	}
	raised, err := c.raw.ExecContext(ctx, fmt.Sprintf(`%sUPDATE %s SET token = LAST_INSERT_ID(token + 1), used = %s, holder = x'%x' WHERE k = '%s'`,
		s.server.noWait, s.tables.Bound, s.facts.Now, h.holder.Encode(), h.key.row))
	if err != nil {
		return 0, mysqlLocked(err)
	}
	token, err := raised.LastInsertId()
	if err == nil && token == 0 {
		err = errLostRace
	}
	return uint64(token), err
}

// insertMySQLRow inserts a row, whose token begins at the floor. The statement locks the floor
// until the new row is committed: the janitor, which raises the floor before it deletes rows,
// waits for that. For a contender that has just inserted the same row, MySQL waits a second.
func insertMySQLRow(ctx context.Context, s *Store, conn *sql.Conn, h *heldLock) error {
	_, err := conn.ExecContext(ctx, fmt.Sprintf(`%sINSERT IGNORE INTO %s (k, name, token, used)
SELECT '%s', x'%x', COALESCE((SELECT token FROM %s WHERE k = '%s' LOCK IN SHARE MODE), 0), %s`,
		s.server.noWait, s.tables.Bound, h.key.row, h.name, s.tables.Bound, floorKey, s.facts.Now))
	switch {
	case err == nil:
		return errRowNew
	case sqldb.MySQLNumber(err) == mysqlDeadlock:
		return errLostRace
	}
	return mysqlLocked(err)
}

// lockMySQLRow implements dialect.lockRow. With another isolation level than READ COMMITTED,
// the lock of a row can become one of the gap beside it when InnoDB splits the page. The
// holder before has given up the row, so the wait for its server lock is short.
func lockMySQLRow(ctx context.Context, s *Store, c *conn, key lockKey, token uint64) error {
	if err := sqldb.ExecAll(ctx, c.raw, `SET TRANSACTION ISOLATION LEVEL READ COMMITTED`, `START TRANSACTION`); err != nil {
		return err
	}
	var now uint64
	var writable bool
	lock := fmt.Sprintf(`SELECT token, %s FROM %s WHERE k = '%s' FOR UPDATE NOWAIT`, sqldb.MySQLWritable, s.tables.Bound, key.row)
	if err := c.raw.QueryRowContext(ctx, lock).Scan(&now, &writable); err != nil {
		return mysqlLocked(err)
	}
	switch {
	case now != token:
		return errLostRace
	case !writable:
		return errBecameReadOnly
	}
	return sqldb.ExecAll(ctx, c.raw, fmt.Sprintf(`DO GET_LOCK('%s', 1)`, key.server))
}

// newMySQLFingerprint returns the name of a lock that only one session ever has. The id does not
// identify a session, because ids begin again when the server is started.
func newMySQLFingerprint() string { return "dlock_guard_" + rand.Text() }

func setMySQLFingerprint(ctx context.Context, c *conn) error {
	c.fingerprint = newMySQLFingerprint()
	return sqldb.ExecAll(ctx, c.raw, fmt.Sprintf(`DO GET_LOCK('%s', 0)`, c.fingerprint))
}

// The numbers of the errors that the store recognizes.
const (
	mysqlTimeout  = 1205 // also MariaDB's for NOWAIT
	mysqlNoWait   = 3572
	mysqlDeadlock = 1213
)

// mysqlLocked recognizes the error of a row that is locked, or was deleted by the janitor.
func mysqlLocked(err error) error {
	switch n := sqldb.MySQLNumber(err); {
	case n == mysqlTimeout, n == mysqlNoWait:
		return errRowLocked
	case errors.Is(err, sql.ErrNoRows):
		return errLostRace
	}
	return err
}

// checkGalera examines whether there are other nodes.
func checkGalera(ctx context.Context, on sqldb.Queryer) (driver.Finding, error) {
	const name = "galera"
	var variable, value string
	err := on.QueryRowContext(ctx, `SHOW SESSION VARIABLES LIKE 'wsrep_on'`).Scan(&variable, &value)
	switch {
	case err != nil && !errors.Is(err, sql.ErrNoRows):
		return driver.Finding{}, err
	case value == "ON":
		return finding.Problem(name, "The server is part of a Galera cluster, where locks hold on one node only. Connect all programs to the same node."), nil
	}
	return finding.OK(name, "The server is not part of a Galera cluster."), nil
}

// Tokens of Session on MySQL and MariaDB come from UUID_SHORT(), a counter in the memory of
// the server that begins at the second of its start times 2^24. To write each number to the
// disk would cost many times what the lock does, and a SEQUENCE of MariaDB 10.11 goes back
// when the server crashes.
//
// Tokens rise across a restart of the server, because
//   - none is drawn in the second of a start, so that the next start is in a later second;
//   - the fence row keeps the largest number that was seen when a connection was opened. If
//     the clock was set back, the number is smaller now. Then the difference is added to all
//     numbers, and kept in the same row.

// mysqlDraw draws a number. The highest byte identifies the server.
const mysqlDraw = `CAST(UUID_SHORT() & 0xffffffffffffff AS SIGNED)`

const (
	// mysqlSkip is larger than the count of numbers that any server draws.
	mysqlSkip = 1 << 44
	// startLimit is how long to wait for the end of the second of the start. It would never
	// end if the clock was set back.
	startLimit = 1500 * time.Millisecond
)

// startMySQLTokens draws a number and returns what has to be added. It draws while the row is
// locked, so that connections that open together get rising numbers.
func startMySQLTokens(ctx context.Context, s *Store, conn *sql.Conn) (shift uint64, err error) {
	if err := awaitMySQLStart(ctx, conn); err != nil {
		return 0, err
	}
	var seen, last uint64
	err = sqldb.ExecAll(ctx, conn, `INSERT IGNORE INTO `+s.tables.Fence+` (id, seen, shift) VALUES (1, 0, 0)`, sqldb.MySQLLimitIdle, `START TRANSACTION`)
	if err == nil {
		err = conn.QueryRowContext(ctx, `SELECT seen, shift FROM `+s.tables.Fence+` WHERE id = 1 FOR UPDATE`).Scan(&last, &shift)
	}
	if err == nil {
		err = conn.QueryRowContext(ctx, `SELECT `+mysqlDraw).Scan(&seen)
	}
	if err != nil {
		return 0, err
	}
	if seen <= last {
		shift += last - seen + mysqlSkip
	}
	return shift, sqldb.ExecAll(ctx, conn,
		fmt.Sprintf(`UPDATE %s SET seen = %d, shift = %d WHERE id = 1`, s.tables.Fence, seen, shift),
		`COMMIT`, sqldb.MySQLUnlimitIdle,
	)
}

// awaitMySQLStart waits until the second in which the server was started has ended.
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

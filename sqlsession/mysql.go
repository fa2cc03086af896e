package sqlsession

import (
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
	"github.com/dlock-go/dlock/internal/sqldb"
)

var mysqlDialect = dialect{
	schema: schema{
		fence: `CREATE TABLE IF NOT EXISTS {fence} (
	id TINYINT NOT NULL PRIMARY KEY,
	seen BIGINT NOT NULL,
	shift BIGINT NOT NULL
) ENGINE=InnoDB`,
		bound: `CREATE TABLE IF NOT EXISTS {bound} (
	k CHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY,
	name VARBINARY(255) NOT NULL,
	token BIGINT NOT NULL,
	used BIGINT NOT NULL,
	holder BLOB
) ENGINE=InnoDB`,
		floor: `INSERT IGNORE INTO {bound} (k, name, token, used) VALUES ('` + floorKey + `', '', 0, {now})`,
	},
	home:        `SELECT DATABASE()`, // tables are not looked for in any other
	keyOf:       mysqlKey,
	list:        mysqlList,
	examine:     examineMySQL,
	diagnose:    diagnoseMySQL,
	startTokens: startMySQLTokens,
	guard:       guardMySQL,
	claimRow:    claimMySQLRow,
	pinRow:      pinMySQLRow,
	failureOf:   mysqlFailure,
}

// mysqlVariables are what is asked of the server.
const mysqlVariables = `SHOW SESSION VARIABLES WHERE Variable_name IN ('version', 'read_only', 'innodb_read_only', 'wait_timeout',
'idle_transaction_timeout', 'idle_write_transaction_timeout', 'idle_readonly_transaction_timeout', 'innodb_lock_wait_timeout',
'innodb_flush_log_at_trx_commit', 'wsrep_on', 'max_connections', 'autocommit', 'completion_type')`

// A server that was the primary and becomes a replica is made read-only, and keeps
// connections and their locks. So this is looked at whenever a lock is asked for or
// looked after.
const (
	mysqlWritable = `CONCAT(@@global.read_only) IN ('0', 'OFF')` // whether it is a number or a word
	mysqlSession  = `IF(` + mysqlWritable + `, CONNECTION_ID(), ` + readOnlySession + `)`
)

func examineMySQL(ctx context.Context, conn *sql.Conn, facts *sqldb.Facts, t *sqldb.Tables) (*server, error) {
	variables, err := readSettings(ctx, conn, mysqlVariables)
	if err != nil {
		return nil, err
	}
	for _, name := range []string{"read_only", "innodb_read_only"} {
		if variables[name] == "ON" {
			return nil, fmt.Errorf("%w: the server is read-only (%s is ON), so it is a replica or about to be one, and its locks keep nobody out elsewhere: connect to the primary",
				driver.ErrUnsupported, name)
		}
	}
	if variables["autocommit"] == "OFF" {
		return nil, fmt.Errorf("%w: autocommit is off, so that what was written would never be committed; leave it on for the connections of the store", driver.ErrUnsupported)
	}
	if variables["completion_type"] == sqldb.MySQLChain {
		return nil, sqldb.ErrMySQLChain
	}
	var database sql.NullString
	if err := conn.QueryRowContext(ctx, `SELECT DATABASE()`).Scan(&database); err != nil {
		return nil, err
	}
	if database.String == "" {
		return nil, errors.New("the connection has no database selected")
	}
	mariadb := strings.Contains(variables["version"], "MariaDB")
	if err := checkMySQLVersion(variables["version"], mariadb); err != nil {
		return nil, err
	}
	server := &server{
		version:    variables["version"],
		identity:   `SELECT ` + mysqlSession,
		releaseAll: []string{`ROLLBACK`, `DO RELEASE_ALL_LOCKS()`},

		findSession: `SELECT IS_USED_LOCK('{guard}') IS NOT NULL`,
		killSession: `KILL CONNECTION {id}`, // over the connection that found it: no restart is in between
		look:        `SELECT i FROM JSON_TABLE(?, '$[*]' COLUMNS (i FOR ORDINALITY, k VARCHAR(64) PATH '$')) AS watched WHERE IS_FREE_LOCK(k) = 1` + sqldb.MySQLAllRows,
		acquire:     fmt.Sprintf(`SELECT IF(%s, IF(GET_LOCK(?, 0) = 1, %s, 0), %d)`, mysqlWritable, mysqlDraw, readOnlyToken),
		draw:        fmt.Sprintf(`SELECT IF(%s, %s, %d)`, mysqlWritable, mysqlDraw, readOnlyToken),
		release:     `DO RELEASE_LOCK(?)`,
		noWait:      `SET STATEMENT innodb_lock_wait_timeout = 0 FOR `,
		readRow:     t.Expand(facts.Now, `SELECT token, holder, used <= {now} - `+janitorMillis+` FROM {bound} WHERE k = ?`),
		now:         facts.Now,
		janitor:     newJanitorQueries(t, facts, `LOCK IN SHARE MODE`),
		unmark:      `DO RELEASE_LOCK('%s'), RELEASE_LOCK('%s')`,
		table:       t.Bound,
		fence:       t.Fence,
	}
	if !mariadb {
		server.noWait = ""
	}
	addMySQLSettings(server, variables, mariadb)
	return server, nil
}

// checkMySQLVersion refuses servers that lack something.
func checkMySQLVersion(version string, mariadb bool) error {
	var major, minor int
	if _, err := fmt.Sscanf(version, "%d.%d", &major, &minor); err != nil {
		return fmt.Errorf("the version %q is not understood: %w", version, err)
	}
	if least := 8; mariadb && (major < 10 || major == 10 && minor < 6) || !mariadb && major < least {
		return fmt.Errorf("%w: version %s: MySQL 8 or MariaDB 10.6 is needed", driver.ErrUnsupported, version)
	}
	return nil
}

// addMySQLSettings keeps connections alive that idle. Others are used once a second,
// which is enough for timeouts that are longer.
func addMySQLSettings(server *server, variables map[string]string, mariadb bool) {
	set := func(name, value string) {
		server.settings = append(server.settings, fmt.Sprintf("SET SESSION %s = %s", name, value))
		server.restore = append(server.restore, fmt.Sprintf("SET SESSION %s = %s", name, variables[name]))
	}
	seconds := func(name string) time.Duration {
		n, _ := strconv.ParseInt(variables[name], 10, 64) // what is not there is no timeout
		return time.Duration(n) * time.Second
	}
	if isShort(seconds("wait_timeout")) {
		set("wait_timeout", "28800")
	}
	for _, name := range []string{"idle_transaction_timeout", "idle_write_transaction_timeout", "idle_readonly_transaction_timeout"} {
		if isShort(seconds(name)) {
			set(name, "0")
		}
	}
	if mariadb {
		const name = "idle_write_transaction_timeout"
		server.janitor.guarded = []string{"SET SESSION " + name + " = 2"}
		server.janitor.restore = []string{"SET SESSION " + name + " = " + variables[name]}
	} else { // it cannot do without waiting for a row that somebody else inserts
		set("innodb_lock_wait_timeout", "1")
	}
}

// mysqlKey returns the key of a lock for GET_LOCK, which takes 64 characters, and whether their
// case matters depends on the version: these are 46 without any.
func mysqlKey(sum [sha256.Size]byte) any {
	const bytes = 20
	return "dlock_" + hex.EncodeToString(sum[:bytes])
}

func mysqlList(keys []any) string {
	var text strings.Builder
	separator := `["`
	for _, key := range keys {
		text.WriteString(separator)
		text.WriteString(key.(string))
		separator = `","`
	}
	text.WriteString(`"]`)
	return text.String()
}

// claimMySQLRow is a claimFunc. The texts have their values in them, in
// hexadecimal digits, because parameters would double the round trips. It looks
// first whether there is a row, since to lock one that is not there would lock
// the place of others.
func claimMySQLRow(ctx context.Context, conn *sql.Conn, server *server, h *heldLock) (uint64, error) {
	var last int64
	find := fmt.Sprintf(`SELECT token FROM %s WHERE k = '%s'`, server.table, h.key.row)
	err := conn.QueryRowContext(ctx, find).Scan(&last)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, insertMySQLRow(ctx, conn, server, h)
	}
	if err == nil {
		err = execAll(ctx, conn, `START TRANSACTION`)
	}
	if err != nil {
		return 0, err
	}
	err = conn.QueryRowContext(ctx, find+` FOR UPDATE NOWAIT`).Scan(&last)
	if err == nil {
		err = execAll(ctx, conn,
			fmt.Sprintf(`UPDATE %s SET token = %d, used = %s, holder = x'%x' WHERE k = '%s'`, server.table, last+1, server.now, h.holder.Encode(), h.key.row),
			`COMMIT`,
		)
	}
	if err != nil {
		return 0, errors.Join(mysqlLocked(err), execAll(ctx, conn, `ROLLBACK`))
	}
	return uint64(last + 1), nil
}

// insertMySQLRow makes a row, whose token begins at the floor. Who else does the same
// at the same time may be faster, and hold it already: MariaDB does not wait for
// that, and MySQL a second. The floor is locked until the new row is committed:
// whoever raises it, before deleting rows, waits for that.
func insertMySQLRow(ctx context.Context, conn *sql.Conn, server *server, h *heldLock) error {
	_, err := conn.ExecContext(ctx, fmt.Sprintf(`%sINSERT IGNORE INTO %s (k, name, token, used)
SELECT '%s', x'%x', COALESCE((SELECT token FROM %s WHERE k = '%s' LOCK IN SHARE MODE), 0), %s`,
		server.noWait, server.table, h.key.row, h.name, server.table, floorKey, server.now))
	switch n := sqldb.MySQLNumber(err); {
	case err == nil:
		return errRowNew
	case n == mysqlTimeout, n == mysqlDeadlock:
		return errFaster
	}
	return err
}

// pinMySQLRow is a pinFunc. The one who had the mark before has given up
// the row, so the wait for the mark is short.
//
// With READ COMMITTED, since otherwise the lock of a row can become one of the
// place beside it when InnoDB splits the page, and keep others from inserting.
func pinMySQLRow(ctx context.Context, c *conn, server *server, key lockKey, token uint64) error {
	if err := execAll(ctx, c.raw, `SET TRANSACTION ISOLATION LEVEL READ COMMITTED`, `START TRANSACTION`); err != nil {
		return err
	}
	var now uint64
	lock := fmt.Sprintf(`SELECT token, %s FROM %s WHERE k = '%s' FOR UPDATE NOWAIT`, mysqlSession, server.table, key.row)
	if err := c.raw.QueryRowContext(ctx, lock).Scan(&now, &c.id); err != nil {
		return mysqlLocked(err)
	}
	switch {
	case now != token:
		return errFaster
	case c.id == readOnlySession:
		return sqldb.ErrReadOnly
	}
	c.guard = newMySQLGuard()
	return execAll(ctx, c.raw, fmt.Sprintf(`DO GET_LOCK('%s', 1), GET_LOCK('%s', 0)`, key.server, c.guard))
}

// newMySQLGuard returns the name of a lock that only one session ever has, because its id
// does not identify it: the ids begin again when the server is started.
func newMySQLGuard() string { return "dlock_guard_" + rand.Text() }

func guardMySQL(ctx context.Context, c *conn) error {
	c.guard = newMySQLGuard()
	return execAll(ctx, c.raw, fmt.Sprintf(`DO GET_LOCK('%s', 0)`, c.guard))
}

// The numbers of errors that mean something here.
const (
	mysqlTimeout  = 1205 // MariaDB's for NOWAIT, too
	mysqlNoWait   = 3572
	mysqlDeadlock = 1213
)

// mysqlLocked recognizes the error of a row that somebody else has locked, or swept.
func mysqlLocked(err error) error {
	switch n := sqldb.MySQLNumber(err); {
	case n == mysqlTimeout, n == mysqlNoWait:
		return errRowLocked
	case errors.Is(err, sql.ErrNoRows):
		return errFaster
	}
	return err
}

func mysqlFailure(err error) failure {
	if sqldb.MySQLNumber(err) == mysqlDeadlock {
		return retryFailure
	}
	return otherFailure
}

func diagnoseMySQL(ctx context.Context, conn *sql.Conn) ([]driver.Finding, error) {
	variables, err := readSettings(ctx, conn, mysqlVariables)
	if err != nil {
		return nil, err
	}
	var replicas int // as far as the user may see the connections of others
	if err := conn.QueryRowContext(ctx, `SELECT COUNT(*) FROM information_schema.processlist WHERE command LIKE 'Binlog Dump%'`).Scan(&replicas); err != nil {
		return nil, err
	}
	findings := []driver.Finding{
		sqldb.Fine("version", variables["version"]),
		readOnlyFinding(variables["read_only"] == "ON" || variables["innodb_read_only"] == "ON"),
		sqldb.Fine("durability", durableTokens),
		sqldb.Fine("wait_timeout", variables["wait_timeout"]+" s. Connections that hold locks are kept from it."),
		replicaFinding(replicas, false),
	}
	if flush := variables["innodb_flush_log_at_trx_commit"]; flush != "1" {
		findings[2] = sqldb.Warning("durability", "innodb_flush_log_at_trx_commit is %s: after a crash tokens may be granted again. Set it to 1.", flush)
	}
	if variables["wsrep_on"] == "ON" {
		findings = append(findings, sqldb.Problem("galera",
			"The server is part of a Galera cluster, where locks hold on one node only. Let everybody connect to the same node, or use scheme row."))
	}
	return findings, nil
}

package sqllock

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// boundSchema implements boundExaminer.
func (mysql) boundSchema(t tables) []string {
	return []string{
		`CREATE TABLE IF NOT EXISTS ` + t.fence() + ` (
	id TINYINT NOT NULL PRIMARY KEY,
	seen BIGINT NOT NULL,
	shift BIGINT NOT NULL
) ENGINE=InnoDB`,
		`CREATE TABLE IF NOT EXISTS ` + t.bound() + ` (
	k CHAR(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY,
	name VARBINARY(255) NOT NULL,
	token BIGINT NOT NULL,
	used BIGINT NOT NULL,
	holder BLOB
) ENGINE=InnoDB`,
		t.expand(mysqlNow, `INSERT IGNORE INTO {bound} (k, name, token, used) VALUES ('`+floorKey+`', '', 0, {now})`),
	}
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

// examine implements boundExaminer.
func (m mysql) examine(ctx context.Context, conn *sql.Conn, t tables) (*boundServer, error) {
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
	if variables["completion_type"] == mysqlChain {
		return nil, errMySQLChain
	}
	if _, err := m.home(ctx, conn, ""); err != nil {
		return nil, err
	}
	mariadb := strings.Contains(variables["version"], "MariaDB")
	if err := m.checkVersion(variables["version"], mariadb); err != nil {
		return nil, err
	}
	server := &boundServer{
		version:    variables["version"],
		identity:   `SELECT ` + mysqlSession,
		releaseAll: []string{`ROLLBACK`, `DO RELEASE_ALL_LOCKS()`},
		look:       `SELECT i FROM JSON_TABLE(?, '$[*]' COLUMNS (i FOR ORDINALITY, k VARCHAR(64) PATH '$')) AS watched WHERE IS_FREE_LOCK(k) = 1` + mysqlAllRows,
		acquire:    fmt.Sprintf(`SELECT IF(%s, IF(GET_LOCK(?, 0) = 1, %s, 0), %d)`, mysqlWritable, mysqlDraw, readOnlyToken),
		draw:       fmt.Sprintf(`SELECT IF(%s, %s, %d)`, mysqlWritable, mysqlDraw, readOnlyToken),
		release:    `DO RELEASE_LOCK(?)`,
		noWait:     `SET STATEMENT innodb_lock_wait_timeout = 0 FOR `,
		readRow:    t.expand(mysqlNow, `SELECT token, holder, used <= {now} - `+sweepMillis+` FROM {bound} WHERE k = ?`),
		now:        mysqlNow,
		sweep:      newBoundSweep(t, mysqlNow, `LOCK IN SHARE MODE`, positional),
		unmark:     `DO RELEASE_LOCK('%s')`,
		table:      t.bound(),
		fence:      t.fence(),
	}
	if !mariadb {
		server.noWait = ""
	}
	m.addSettings(server, variables, mariadb)
	return server, nil
}

// home implements boundExaminer. It is the database that is selected, since tables
// are not looked for in any other.
func (mysql) home(ctx context.Context, conn *sql.Conn, _ string) (string, error) {
	var database sql.NullString
	if err := conn.QueryRowContext(ctx, `SELECT DATABASE()`).Scan(&database); err != nil {
		return "", err
	}
	if database.String == "" {
		return "", errors.New("the connection has no database selected")
	}
	return database.String, nil
}

// checkVersion refuses servers that lack something.
func (mysql) checkVersion(version string, mariadb bool) error {
	var major, minor int
	if _, err := fmt.Sscanf(version, "%d.%d", &major, &minor); err != nil {
		return fmt.Errorf("the version %q is not understood: %w", version, err)
	}
	if least := 8; mariadb && (major < 10 || major == 10 && minor < 6) || !mariadb && major < least {
		return fmt.Errorf("%w: version %s: MySQL 8 or MariaDB 10.6 is needed", driver.ErrUnsupported, version)
	}
	return nil
}

// addSettings keeps connections alive that idle. Others are used once a second,
// which is enough for timeouts that are longer.
func (mysql) addSettings(server *boundServer, variables map[string]string, mariadb bool) {
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
		server.sweep.guarded = []string{"SET SESSION " + name + " = 2"}
		server.sweep.restore = []string{"SET SESSION " + name + " = " + variables[name]}
	} else { // it cannot do without waiting for a row that somebody else inserts
		set("innodb_lock_wait_timeout", "1")
	}
}

// mark implements boundMarker. GET_LOCK takes 64 characters, and whether their
// case matters depends on the version: these are 46 without any.
func (mysql) mark(sum [sha256.Size]byte) any {
	const bytes = 20
	return "dlock_" + hex.EncodeToString(sum[:bytes])
}

// list implements boundMarker.
func (mysql) list(marks []any) string {
	var b strings.Builder
	separator := `["`
	for _, mark := range marks {
		b.WriteString(separator)
		b.WriteString(mark.(string))
		separator = `","`
	}
	b.WriteString(`"]`)
	return b.String()
}

// claimRow implements rowLocker. The texts have their values in them, in
// hexadecimal digits, because parameters would double the round trips. It looks
// first whether there is a row, since to lock one that is not there would lock
// the place of others.
func (m mysql) claimRow(ctx context.Context, conn *sql.Conn, server *boundServer, b *bond) (uint64, error) {
	var last int64
	find := fmt.Sprintf(`SELECT token FROM %s WHERE k = '%s'`, server.table, b.key.row)
	err := conn.QueryRowContext(ctx, find).Scan(&last)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, m.insertRow(ctx, conn, server, b)
	}
	if err == nil {
		err = execAll(ctx, conn, []string{`START TRANSACTION`})
	}
	if err != nil {
		return 0, err
	}
	err = conn.QueryRowContext(ctx, find+` FOR UPDATE NOWAIT`).Scan(&last)
	if err == nil {
		err = execAll(ctx, conn, []string{
			fmt.Sprintf(`UPDATE %s SET token = %d, used = %s, holder = x'%x' WHERE k = '%s'`, server.table, last+1, server.now, b.holder.Encode(), b.key.row),
			`COMMIT`,
		})
	}
	if err != nil {
		return 0, errors.Join(m.locked(err), execAll(ctx, conn, []string{`ROLLBACK`}))
	}
	return uint64(last + 1), nil
}

// insertRow makes a row, whose token begins at the floor. Who else does the same
// at the same time may be faster, and hold it already: MariaDB does not wait for
// that, and MySQL a second. The floor is locked until the new row is committed:
// whoever raises it, before deleting rows, waits for that.
func (mysql) insertRow(ctx context.Context, conn *sql.Conn, server *boundServer, b *bond) error {
	_, err := conn.ExecContext(ctx, fmt.Sprintf(`%sINSERT IGNORE INTO %s (k, name, token, used)
SELECT '%s', x'%x', COALESCE((SELECT token FROM %s WHERE k = '%s' LOCK IN SHARE MODE), 0), %s`,
		server.noWait, server.table, b.key.row, b.name, server.table, floorKey, server.now))
	switch n := mysqlNumber(err); {
	case err == nil:
		return errRowNew
	case n == mysqlTimeout, n == mysqlDeadlock:
		return errFaster
	}
	return err
}

// pinRow implements rowLocker. The one who had the mark before has given up
// the row, so the wait for the mark is short.
//
// With READ COMMITTED, since otherwise the lock of a row can become one of the
// place beside it when InnoDB splits the page, and keep others from inserting.
func (m mysql) pinRow(ctx context.Context, conn *sql.Conn, server *boundServer, key lockKey, token uint64) (id string, err error) {
	if err := execAll(ctx, conn, []string{`SET TRANSACTION ISOLATION LEVEL READ COMMITTED`, `START TRANSACTION`}); err != nil {
		return "", err
	}
	var now uint64
	lock := fmt.Sprintf(`SELECT token, %s FROM %s WHERE k = '%s' FOR UPDATE NOWAIT`, mysqlSession, server.table, key.row)
	if err := conn.QueryRowContext(ctx, lock).Scan(&now, &id); err != nil {
		return "", m.locked(err)
	}
	switch {
	case now != token:
		return "", errFaster
	case id == readOnlySession:
		return "", errReadOnly
	}
	return id, execAll(ctx, conn, []string{fmt.Sprintf(`DO GET_LOCK('%s', 1)`, key.mark)})
}

// The numbers of errors that mean something here.
const (
	mysqlTimeout  = 1205 // MariaDB's for NOWAIT, too
	mysqlNoWait   = 3572
	mysqlDeadlock = 1213
)

// locked recognizes the error of a row that somebody else has locked, or swept.
func (mysql) locked(err error) error {
	switch n := mysqlNumber(err); {
	case n == mysqlTimeout, n == mysqlNoWait:
		return errRowLocked
	case errors.Is(err, sql.ErrNoRows):
		return errFaster
	}
	return err
}

// boundFailure implements boundDialect.
func (mysql) boundFailure(err error) boundFailure {
	if mysqlNumber(err) == mysqlDeadlock {
		return retryFailure
	}
	return otherFailure
}

// diagnoseBound implements boundExaminer.
func (m mysql) diagnoseBound(ctx context.Context, conn *sql.Conn) ([]driver.Finding, error) {
	variables, err := readSettings(ctx, conn, mysqlVariables)
	if err != nil {
		return nil, err
	}
	var replicas int // as far as the user may see the connections of others
	if err := conn.QueryRowContext(ctx, `SELECT COUNT(*) FROM information_schema.processlist WHERE command LIKE 'Binlog Dump%'`).Scan(&replicas); err != nil {
		return nil, err
	}
	findings := []driver.Finding{
		fine("version", variables["version"]),
		boundReadOnly(variables["read_only"] == "ON" || variables["innodb_read_only"] == "ON"),
		fine("durability", durableTokens),
		fine("wait_timeout", variables["wait_timeout"]+" s. Connections that hold locks are kept from it."),
		boundReplicas(replicas, false),
	}
	if flush := variables["innodb_flush_log_at_trx_commit"]; flush != "1" {
		findings[2] = warning("durability", "innodb_flush_log_at_trx_commit is %s: after a crash tokens may be granted again. Set it to 1.", flush)
	}
	if variables["wsrep_on"] == "ON" {
		findings = append(findings, problem("galera",
			"The server is part of a Galera cluster, where locks hold on one node only. Let everybody connect to the same node, or use scheme row."))
	}
	return findings, nil
}

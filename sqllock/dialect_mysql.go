package sqllock

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/sqldb"
)

// mysqlPatience limits to two seconds how long a renewal waits in MariaDB for a row that
// another transaction keeps locked. The store tries again while the caller waits; if the
// caller has left, the statement ends. MySQL reads it as a comment and waits as long as
// innodb_lock_wait_timeout says, 50 seconds by default.
const mysqlPatience = `/*M! SET STATEMENT innodb_lock_wait_timeout = 2 FOR */ `

// mysqlImpatience makes it fail at once. MySQL has no such limit for a statement.
const mysqlImpatience = `/*M! SET STATEMENT innodb_lock_wait_timeout = 0 FOR */ `

var mysqlDialect = dialect{
	schema: mysqlSchema, statements: mysqlStatements,
	writers: serverSlots, renewers: spareSlots, prepares: true, deaf: true, handover: 2 * time.Millisecond,
	guard: sqldb.MySQLGuard, unguard: sqldb.MySQLUnguard,
	take: takeInsertID, renew: renewThenRead, open: checkMySQL, follow: func(*Store) changes { return unseen() },
	checks: []check{mysqlServer, mysqlEngine, checkFloor, checkRights, mysqlDurability, mysqlReplicas, checkClock, mysqlWaiting},
}

var mysqlSchema = []string{
	// Names are bytes, since every collation takes some texts for equal.
	// A released lock keeps its row for the sake of the token, with the
	// time of its release as expires and no owner.
	`CREATE TABLE IF NOT EXISTS {locks} (
	name    VARBINARY(255) NOT NULL PRIMARY KEY,
	token   BIGINT         NOT NULL,
	owner   VARBINARY(32),
	since   BIGINT         NOT NULL,
	expires BIGINT         NOT NULL,
	holder  MEDIUMBLOB     NOT NULL
) ENGINE = InnoDB`,
	// Who waits. Places of fair waiters count in the order of seq; the
	// others are there to be seen.
	`CREATE TABLE IF NOT EXISTS {queue} (
	seq     BIGINT         NOT NULL PRIMARY KEY AUTO_INCREMENT,
	name    VARBINARY(255) NOT NULL,
	owner   VARBINARY(32)  NOT NULL,
	fair    BOOLEAN        NOT NULL,
	expires BIGINT         NOT NULL,
	UNIQUE KEY waiter (name, owner),
	KEY place (name, fair, seq)
) ENGINE = InnoDB`,
	// floor is the highest token whose row was swept, swept the time of
	// the last sweep.
	"CREATE TABLE IF NOT EXISTS {meta} (\n\t`key` VARBINARY(32) NOT NULL PRIMARY KEY,\n\tvalue BIGINT NOT NULL\n) ENGINE = InnoDB",
	"INSERT IGNORE INTO {meta} (`key`, value) VALUES ('floor', 0), ('swept', 0)",
}

func mysqlStatements() [statementCount]string {
	const (
		mine = `owner = ?2 AND expires > {now}`
		// Assignments are made from left to right: those that need the old
		// owner and expiry come first. The token becomes the answer's insert
		// id, which is zero if there was no row to update.
		take = `UPDATE {locks} SET
	token   = LAST_INSERT_ID(IF(` + mine + `, token, token + 1)),
	since   = IF(` + mine + `, since, {now}),
	expires = GREATEST(IF(` + mine + `, expires, 0), {now} + ?3),
	owner   = ?2,
	holder  = ?4
WHERE name = ?1 AND (owner IS NULL OR owner = ?2 OR expires <= {now}) AND (?5 = 0 OR token = ?5)`
		// No empty text: MariaDB takes it for NULL in mode EMPTY_STRING_IS_NULL.
		nobody  = `'{}'`
		from    = `COALESCE(?1, x'00')`
		free    = `UPDATE {locks} SET owner = NULL, expires = {now}, holder = ` + nobody
		held    = `owner IS NOT NULL AND expires > {now}`
		head    = `FROM {queue} WHERE name = ?1 AND fair = 1 AND expires > {now} ORDER BY seq LIMIT 1`
		isFloor = "`key` = 'floor'"
		isSwept = "`key` = 'swept'"
		// A time in the future is one from before the clock stepped back.
		longAgo = `(value <= {now} - ?1 OR value > {now})`
		// Lists are UTF-8 whatever the connection's character set is.
		json = `JSON_TABLE(CONVERT(CAST(?1 AS BINARY) USING utf8mb4), '$[*]' COLUMNS (`
		text = ` VARCHAR(255) CHARACTER SET utf8mb4 PATH `
		// What a list is joined with is looked up row by row: where there are few
		// rows the server would rather read them all, and lock them all.
		eachLock = ` STRAIGHT_JOIN {locks} AS l FORCE INDEX (PRIMARY) ON l.name = `
		grants   = json + `name` + text + `'$[0]', owner` + text + `'$[1]', token BIGINT PATH '$[2]', ttl BIGINT PATH '$[3]')) AS g` +
			eachLock + `CAST(g.name AS BINARY)`
		granted = `l.owner = CAST(g.owner AS BINARY) AND (g.token = 0 OR l.token = g.token) AND l.expires > {now}`
		prolong = `UPDATE ` + grants + ` SET l.expires = GREATEST(l.expires, {now} + g.ttl) WHERE ` + granted
		places  = json + `name` + text + `'$[0]', owner` + text + `'$[1]', ttl BIGINT PATH '$[2]')) AS w
	STRAIGHT_JOIN {queue} AS q FORCE INDEX (waiter) ON q.name = CAST(w.name AS BINARY) AND q.owner = CAST(w.owner AS BINARY)`
		inPlace = `q.fair = 1 AND q.expires > {now}`
		waiters = json + `name` + text + `'$[0]', owner` + text + `'$[1]')) AS w`
		names   = json + `position FOR ORDINALITY, name` + text + `'$')) AS n`
	)
	return [statementCount]string{
		acquire: take,
		acquireFair: take + `
	AND (COALESCE((SELECT owner ` + head + `), ?2) = ?2 OR ` + mine + `)`,
		// The floor's row is locked until the new row is committed: whoever
		// raises the floor, before deleting rows, waits for that.
		insertFree: `INSERT IGNORE INTO {locks} (name, token, owner, since, expires, holder)
SELECT ?1, value, NULL, {now}, {now}, ` + nobody + ` FROM {meta} WHERE ` + isFloor + ` LOCK IN SHARE MODE`,
		current: `SELECT token, COALESCE(owner <> ?2 AND expires > {now}, 0), holder, expires - {now} FROM {locks} WHERE name = ?1`,
		blocker: `SELECT token, holder, expires - {now} FROM {locks} WHERE name = ?1 AND owner <> ?2 AND expires > {now}
UNION ALL SELECT 0, ` + nobody + `, remaining FROM (SELECT owner, expires - {now} AS remaining ` + head + `) AS h WHERE owner <> ?2
ORDER BY token DESC LIMIT 1`,
		renew:       mysqlPatience + prolong,
		renewAtOnce: mysqlImpatience + prolong,
		renewed:     `SELECT l.name, l.owner FROM ` + grants + ` WHERE ` + granted + sqldb.MySQLAllRows,
		release:     free + ` WHERE name = ?1 AND owner = ?2 AND (?3 = 0 OR token = ?3) AND expires > {now}`,
		pass: `UPDATE {locks} SET token = token + 1, owner = ?4, since = {now}, expires = {now} + ?5, holder = ?6
WHERE name = ?1 AND owner = ?2 AND token = ?3 AND expires > {now}`,
		breakLock: free + ` WHERE name = ?1 AND token = ?2 AND ` + held,
		list: `SELECT name, token, holder, since, expires - {now},
	(SELECT COUNT(*) FROM {queue} AS q WHERE q.name = l.name AND q.expires > {now})
FROM {locks} AS l WHERE name >= ` + from + ` AND ` + held + ` ORDER BY name LIMIT ?2`,
		enqueue: `INSERT INTO {queue} (name, owner, fair, expires) VALUES (?1, ?2, 1, {now} + ?3)
ON DUPLICATE KEY UPDATE expires = GREATEST(expires, {now} + ?3)`,
		keepPlaces: `UPDATE ` + places + ` SET q.expires = GREATEST(q.expires, {now} + w.ttl) WHERE ` + inPlace,
		keptPlaces: `SELECT q.name, q.owner FROM ` + places + ` WHERE ` + inPlace + sqldb.MySQLAllRows,

		leave:  `DELETE FROM {queue} WHERE name = ?1 AND owner = ?2`,
		giveUp: `DELETE FROM {queue} WHERE name = ?1 AND owner = ?2`,
		prune:  `DELETE FROM {queue} WHERE name = ?1 AND expires <= {now}`,
		look: `SELECT n.position - 1, n.remaining, h.owner, h.expires - {now}, n.recent
FROM (SELECT n.position, l.name, CAST(n.name AS BINARY) AS wanted,
		IF(l.owner IS NULL, 0, GREATEST(l.expires - {now}, 0)) AS remaining,
		COALESCE(l.since > ` + recently + `, 0) AS recent
	FROM ` + names + ` LEFT JOIN {locks} AS l ON l.name = CAST(n.name AS BINARY)
	WHERE l.owner IS NULL OR l.expires <= {now} + ?2 OR l.since > ` + recently + `) AS n
LEFT JOIN {queue} AS h ON n.remaining = 0 AND h.seq = (
	SELECT q.seq FROM {queue} AS q WHERE q.name = n.wanted AND q.fair = 1 AND q.expires > {now} ORDER BY q.seq LIMIT 1)` + sqldb.MySQLAllRows,
		publish: `INSERT INTO {queue} (name, owner, fair, expires)
SELECT CAST(w.name AS BINARY), CAST(w.owner AS BINARY), 0, {now} + ?2 FROM ` + waiters + `
ON DUPLICATE KEY UPDATE {queue}.expires = GREATEST({queue}.expires, {now} + ?2)`,
		unpublish: `DELETE q FROM ` + waiters + ` STRAIGHT_JOIN {queue} AS q FORCE INDEX (waiter)
	ON q.name = CAST(w.name AS BINARY) AND q.owner = CAST(w.owner AS BINARY) WHERE q.fair = 0`,
		sweepDue:   `SELECT ` + longAgo + ` FROM {meta} WHERE ` + isSwept,
		claimSweep: `UPDATE {meta} SET value = {now} WHERE ` + isSwept + ` AND ` + longAgo,
		sweepPage:  `SELECT name, token, expires <= {now} - ?3 FROM {locks} WHERE name > ` + from + ` ORDER BY name LIMIT ?2`,
		floor:      `SELECT value FROM {meta} WHERE ` + isFloor,
		raiseFloor: `UPDATE {meta} SET value = GREATEST(value, ?1) WHERE ` + isFloor,
		sweepLocks: `DELETE l FROM ` + names + eachLock + `CAST(n.name AS BINARY)
WHERE l.expires <= {now} - ?2 AND l.token <= ?3`,
		sweepQueue: `DELETE FROM {queue} WHERE expires <= {now} ORDER BY seq LIMIT ?1`,
	}
}

// takeInsertID runs an attempt whose token is the insert id. How many rows it changed is not asked: a row that was
// found and is the same as before counts, or does not, as the connection was told.
func takeInsertID(ctx context.Context, run runner, s statement, args ...any) (uint64, error) {
	result, err := run.exec(ctx, s, args...)
	if err != nil {
		return 0, err
	}
	token, err := result.LastInsertId()
	return uint64(token), err
}

// renewThenRead asks which of them are held if not all have changed, be it because one
// was renewed twice within a millisecond.
func renewThenRead(ctx context.Context, run runner, s statement, list string, n int) (map[rowKey]bool, error) {
	result, err := run.exec(ctx, s, list)
	if err != nil {
		return nil, err
	}
	if changed, err := result.RowsAffected(); err != nil || changed == int64(n) {
		return nil, err
	}
	return rowKeys(ctx, run, renewed, list)
}

// checkMySQL refuses a server that cannot be written, and connections with settings
// that cannot be used.
func checkMySQL(ctx context.Context, db *sql.DB, _ sqldb.Tables) error {
	var readOnly, autocommit, safeUpdates bool
	var completion string
	err := db.QueryRowContext(ctx, `SELECT @@global.read_only, @@autocommit, @@sql_safe_updates, @@completion_type`).
		Scan(&readOnly, &autocommit, &safeUpdates, &completion)
	switch {
	case err != nil:
		return err
	case readOnly:
		return fmt.Errorf("%w: read_only is on, as it is on a replica; connect to the primary server", sqldb.ErrReadOnly)
	case !autocommit:
		return fmt.Errorf("%w: autocommit is off, so that a lock would be granted and never committed; leave it on for the connections of the store", driver.ErrUnsupported)
	case completion == sqldb.MySQLChain:
		return sqldb.ErrMySQLChain
	case safeUpdates:
		return fmt.Errorf("%w: sql_safe_updates is on, so that no lock could be renewed; leave it off for the connections of the store", driver.ErrUnsupported)
	}
	return nil
}

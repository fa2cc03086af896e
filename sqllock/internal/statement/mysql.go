package statement

import "github.com/dlock-go/dlock/internal/sqldb"

var mysqlSchema = []string{
	// Names are bytes, since every collation takes some texts for equal.
	`CREATE TABLE IF NOT EXISTS {locks} (
	name    VARBINARY(255) NOT NULL PRIMARY KEY,
	token   BIGINT         NOT NULL,
	owner   VARBINARY(32),
	since   BIGINT         NOT NULL,
	expires BIGINT         NOT NULL,
	holder  MEDIUMBLOB     NOT NULL
) ENGINE = InnoDB`,
	`CREATE TABLE IF NOT EXISTS {queue} (
	seq     BIGINT         NOT NULL PRIMARY KEY AUTO_INCREMENT,
	name    VARBINARY(255) NOT NULL,
	owner   VARBINARY(32)  NOT NULL,
	mode    VARBINARY(20)  NOT NULL,
	fair    BOOLEAN        NOT NULL,
	expires BIGINT         NOT NULL,
	UNIQUE KEY waiter (name, owner),
	KEY place (name, fair, seq)
) ENGINE = InnoDB`,
	"CREATE TABLE IF NOT EXISTS {meta} (\n\t`key` VARBINARY(32) NOT NULL PRIMARY KEY,\n\tvalue BIGINT NOT NULL\n) ENGINE = InnoDB",
	"INSERT IGNORE INTO {meta} (`key`, value) VALUES ('floor', 0), ('swept', 0)",
}

// mysqlShortWait limits to two seconds how long MariaDB lets a renewal wait for a row that another
// transaction keeps locked. The store tries again while the caller waits; if the caller has left,
// the statement ends. MySQL has no limit for a statement: it reads a comment and lets the renewal
// wait as long as innodb_lock_wait_timeout says, 50 seconds by default.
const mysqlShortWait = `/*M! SET STATEMENT innodb_lock_wait_timeout = 2 FOR */ `

// mysqlLimit is the limit of the other statements. In MySQL they wait, as with mysqlShortWait.
const mysqlLimit = `/*M! SET STATEMENT innodb_lock_wait_timeout = 1 FOR */ `

// mysqlNoWait lets a renewal in MariaDB fail at once. In MySQL it waits, as with mysqlShortWait.
const mysqlNoWait = `/*M! SET STATEMENT innodb_lock_wait_timeout = 0 FOR */ `

func mysqlTexts() texts {
	const (
		mine = `owner = ?2 AND expires > {now}`
		// The server assigns from left to right: what needs the old owner and
		// expiry comes first. The token becomes the insert id of the result, which is
		// zero if there was no row to update.
		take = `{limit}UPDATE {locks} SET
	token   = LAST_INSERT_ID(IF(` + mine + `, token, token + ?6)),
	since   = IF(` + mine + `, since, {now}),
	expires = GREATEST(IF(` + mine + `, expires, 0), {now} + ?3),
	owner   = ?2,
	holder  = ?4
WHERE name = ?1 AND (owner IS NULL OR owner = ?2 OR expires <= {now}) AND (?5 = 0 OR token = ?5)`
		// Lists are UTF-8 whatever the connection's character set is.
		json = `JSON_TABLE(CONVERT(CAST(?1 AS BINARY) USING utf8mb4), '$[*]' COLUMNS (`
		text = ` VARCHAR(255) CHARACTER SET utf8mb4 PATH `
		// The server looks up a list row by row: where there are few rows in the
		// table, it would otherwise read and lock all of them.
		eachLock = ` STRAIGHT_JOIN {locks} AS l FORCE INDEX (PRIMARY) ON l.name = `
		grants   = json + `name` + text + `'$[0]', owner` + text + `'$[1]', token BIGINT PATH '$[2]', ttl BIGINT PATH '$[3]')) AS g` +
			eachLock + `CAST(g.name AS BINARY)`
		granted   = `l.owner = CAST(g.owner AS BINARY) AND (g.token = 0 OR l.token = g.token) AND l.expires > {now}`
		prolong   = `UPDATE ` + grants + ` SET l.expires = GREATEST(l.expires, {now} + g.ttl) WHERE ` + granted
		eachPlace = ` STRAIGHT_JOIN {queue} AS q FORCE INDEX (waiter) ON q.name = CAST(w.name AS BINARY) AND q.owner = CAST(w.owner AS BINARY)`
		places    = json + `name` + text + `'$[0]', owner` + text + `'$[1]', ttl BIGINT PATH '$[2]')) AS w` + eachPlace
		inPlace   = ` WHERE q.expires > {now}`
		kept      = `SELECT q.name, q.owner FROM ` + places + inPlace + sqldb.MySQLAllRows
		waiters   = json + `name` + text + `'$[0]', owner` + text + `'$[1]')) AS w`
		names     = json + `position FOR ORDINALITY, name` + text + `'$')) AS n`
		wanted    = json + `name` + text + `'$[0]', owner` + text + `'$[1]', mode` + text + `'$[2]')) AS w`
		saved     = json + `name` + text + `'$[0]', token BIGINT PATH '$[1]', owner` + text + `'$[2]', since BIGINT PATH '$[3]',
	expires BIGINT PATH '$[4]', holder LONGTEXT CHARACTER SET utf8mb4 PATH '$[5]')) AS r`
		readRows = `SELECT l.name, ` + row + ` FROM ` + names + eachLock + `CAST(n.name AS BINARY)` + sqldb.MySQLAllRows
	)
	return texts{
		Acquire: take,
		AcquireFair: take + `
	AND (COALESCE((SELECT owner ` + head + `), ?2) = ?2 OR ` + mine + `)`,
		// The floor's row is locked until the new row is committed: a janitor that
		// raises the floor, before it deletes rows, waits for that.
		InsertFree: `{limit}INSERT IGNORE INTO {locks} (name, token, owner, since, expires, holder)
SELECT ?1, value, NULL, {now}, {now}, {noholder} FROM {meta} WHERE {key} = 'floor' LOCK IN SHARE MODE`,
		Renew:       mysqlShortWait + prolong,
		RenewAtOnce: mysqlNoWait + prolong,
		Renewed:     `SELECT l.name, l.owner FROM ` + grants + ` WHERE ` + granted + sqldb.MySQLAllRows,
		LockHeld:    `SELECT l.name, l.owner FROM ` + grants + ` WHERE ` + granted + sqldb.MySQLAllRows + ` FOR UPDATE`,
		ReleaseAll:  `UPDATE ` + grants + ` SET l.owner = NULL, l.expires = {now}, l.holder = {noholder} WHERE ` + granted,
		Enqueue: `{limit}INSERT INTO {queue} (name, owner, mode, fair, expires) VALUES (?1, ?2, ?5, ?4 = 1, {now} + ?3)
ON DUPLICATE KEY UPDATE expires = GREATEST(expires, {now} + ?3)`,
		LockRow:  rowAndPlaces + ` WHERE l.name = ?1 FOR UPDATE`,
		ReadRows: readRows,
		LockRows: readRows + ` FOR UPDATE SKIP LOCKED`,
		LockAll: eachRow(`l.name`, `CAST(w.owner AS BINARY)`, `CAST(w.mode AS BINARY)`) + ` FROM ` + wanted + eachLock + `CAST(w.name AS BINARY)` +
			sqldb.MySQLAllRows + ` FOR UPDATE`,
		InsertAll: `{limit}INSERT IGNORE INTO {locks} (name, token, owner, since, expires, holder)
SELECT CAST(n.name AS BINARY), value, NULL, {now}, {now}, {noholder} FROM ` + names + ` STRAIGHT_JOIN {meta} ON {key} = 'floor' LOCK IN SHARE MODE`,
		SaveAll: `UPDATE ` + saved + eachLock + `CAST(r.name AS BINARY) SET l.token = r.token, l.owner = CAST(r.owner AS BINARY),
	l.since = r.since, l.expires = r.expires, l.holder = CAST(r.holder AS BINARY)`,
		KeepPlaces:     `{limit}UPDATE ` + places + ` SET q.expires = GREATEST(q.expires, {now} + w.ttl)` + inPlace,
		KeptPlaces:     kept,
		UnlockedPlaces: kept + ` FOR UPDATE SKIP LOCKED`,
		Poll: `SELECT n.position - 1, n.remaining, h.owner, h.expires - {now}, n.recent
FROM (SELECT n.position, l.name, CAST(n.name AS BINARY) AS wanted,
		IF(l.owner IS NULL, 0, GREATEST(l.expires - {now}, 0)) AS remaining,
		COALESCE(l.since ` + recently + `, 0) AS recent
	FROM ` + names + ` LEFT JOIN {locks} AS l ON l.name = CAST(n.name AS BINARY)
	WHERE l.owner IS NULL OR l.expires <= {now} + ?2 OR l.since ` + recently + `) AS n
LEFT JOIN {queue} AS h ON n.remaining = 0 AND h.seq = (
	SELECT q.seq FROM {queue} AS q WHERE q.name = n.wanted AND q.fair = 1 AND q.expires > {now} ORDER BY q.seq LIMIT 1)` + sqldb.MySQLAllRows,
		Publish: `{limit}INSERT INTO {queue} (name, owner, mode, fair, expires)
SELECT CAST(w.name AS BINARY), CAST(w.owner AS BINARY), 'none', 0, {now} + ?2 FROM ` + waiters + `
ON DUPLICATE KEY UPDATE {queue}.expires = GREATEST({queue}.expires, {now} + ?2)`,
		Unpublish:    `{limit}DELETE q FROM ` + waiters + eachPlace,
		DeleteLocks:  `DELETE l FROM ` + names + eachLock + `CAST(n.name AS BINARY) WHERE l.expires <= {now} - ?2 AND l.token <= ?3`,
		DeletePlaces: `{limit}DELETE FROM {queue} WHERE expires <= {now} ORDER BY seq LIMIT ?1`,
	}.withWords("{key}", "`key`", "{fair}", `fair = 1`, "{greatest}", `GREATEST`,
		// No empty text: MariaDB takes it for NULL in mode EMPTY_STRING_IS_NULL.
		"{noholder}", `'{}'`, "{from}", `COALESCE(?1, x'00')`, "{limit}", mysqlLimit, "{limited}", "")
}

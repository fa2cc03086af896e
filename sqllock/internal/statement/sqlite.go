package statement

var sqliteSchema = []string{
	`CREATE TABLE IF NOT EXISTS {locks} (
	name    TEXT    NOT NULL PRIMARY KEY COLLATE BINARY,
	token   INTEGER NOT NULL,
	owner   TEXT,
	since   INTEGER NOT NULL,
	expires INTEGER NOT NULL,
	holder  TEXT    NOT NULL
) WITHOUT ROWID`,
	`CREATE TABLE IF NOT EXISTS {queue} (
	seq     INTEGER PRIMARY KEY,
	name    TEXT    NOT NULL COLLATE BINARY,
	owner   TEXT    NOT NULL,
	mode    TEXT    NOT NULL,
	fair    INTEGER NOT NULL,
	expires INTEGER NOT NULL,
	UNIQUE (name, owner)
)`,
	// Ends with the row's seq, as every index does: the head comes first.
	`CREATE INDEX IF NOT EXISTS {queue}_order ON {queue} (name, fair)`,
	`CREATE TABLE IF NOT EXISTS {meta} (
	key   TEXT    NOT NULL PRIMARY KEY,
	value INTEGER NOT NULL
) WITHOUT ROWID`,
	`INSERT OR IGNORE INTO {meta} (key, value) VALUES ('floor', 0), ('swept', 0)`,
}

func sqliteTexts() texts {
	const (
		insertLock = `INSERT INTO {locks} AS l (name, token, owner, since, expires, holder) `
		// A sum that is too large would be a fraction. NULL is an error.
		isSmall = ` <= 9223372036854775807 - ?6`
		newLock = `?1, (SELECT value + ?6 FROM {meta} WHERE key = 'floor' AND value` + isSmall + `), ?2, {now}, {now} + ?3, ?4`
		// excluded.since is the time of the attempt.
		onConflict = ` ON CONFLICT (name) DO UPDATE SET
	token   = CASE WHEN l.owner IS excluded.owner AND l.expires > excluded.since THEN l.token WHEN l.token` + isSmall + ` THEN l.token + ?6 END,
	since   = iif(l.owner IS excluded.owner AND l.expires > excluded.since, l.since, excluded.since),
	expires = max(iif(l.owner IS excluded.owner AND l.expires > excluded.since, l.expires, 0), excluded.expires),
	owner   = excluded.owner,
	holder  = excluded.holder
WHERE (l.owner IS NULL OR l.owner = excluded.owner OR l.expires <= excluded.since) AND (?5 = 0 OR l.token = ?5)
RETURNING token`
		renew = `UPDATE {locks} SET expires = max(expires, {now} + g.ttl)
FROM (SELECT value->>0 AS name, value->>1 AS owner, value->>2 AS token, value->>3 AS ttl FROM json_each(?1)) AS g
WHERE {locks}.name = g.name AND {locks}.owner = g.owner AND (g.token = 0 OR {locks}.token = g.token) AND {locks}.expires > {now}
RETURNING name, owner`
		places   = `(SELECT value->>0 AS name, value->>1 AS owner, value->>2 AS ttl FROM json_each(?1)) AS w`
		inPlace  = `q.name = w.name AND q.owner = w.owner AND expires > {now}`
		readRows = `SELECT l.name, ` + row + ` FROM {locks} AS l WHERE l.name IN (SELECT value FROM json_each(?1))`
	)
	return texts{
		// A statement that writes takes the write lock, whatever kind of transaction the driver begins.
		Begin:   `UPDATE {meta} SET value = value WHERE key = ''`,
		Acquire: insertLock + `VALUES (` + newLock + `)` + onConflict,
		AcquireFair: insertLock + `SELECT ` + newLock + `
WHERE coalesce((SELECT owner ` + head + `), ?2) = ?2
   OR EXISTS (SELECT 1 FROM {locks} WHERE name = ?1 AND owner = ?2 AND expires > {now})` + onConflict,
		Renew:       renew,
		RenewAtOnce: renew,
		InsertFree: `INSERT OR IGNORE INTO {locks} (name, token, owner, since, expires, holder)
SELECT ?1, value, NULL, {now}, {now}, {noholder} FROM {meta} WHERE key = 'floor'`,
		LockRow:  rowAndPlaces + ` WHERE l.name = ?1`,
		ReadRows: readRows,
		LockRows: readRows,
		LockAll: eachRow(`l.name`, `w.owner`, `w.mode`) + `
FROM (SELECT value->>0 AS name, value->>1 AS owner, value->>2 AS mode FROM json_each(?1)) AS w JOIN {locks} AS l ON l.name = w.name`,
		InsertAll: `INSERT OR IGNORE INTO {locks} (name, token, owner, since, expires, holder)
SELECT j.value, f.value, NULL, {now}, {now}, {noholder} FROM json_each(?1) AS j, {meta} AS f WHERE f.key = 'floor'`,
		SaveAll: `UPDATE {locks} SET token = r.token, owner = r.owner, since = r.since, expires = r.expires, holder = r.holder
FROM (SELECT value->>0 AS name, value->>1 AS token, value->>2 AS owner, value->>3 AS since, value->>4 AS expires, value->>5 AS holder FROM json_each(?1)) AS r
WHERE {locks}.name = r.name`,
		KeepPlaces: `UPDATE {queue} AS q SET expires = max(expires, {now} + w.ttl) FROM ` + places + ` WHERE ` + inPlace,
		KeptPlaces: `SELECT q.name, q.owner FROM {queue} AS q, ` + places + ` WHERE ` + inPlace,
		// The clock is read once, not for each name.
		Poll: `WITH clock (now) AS MATERIALIZED (SELECT {now}), near AS MATERIALIZED (
	SELECT j.key, j.value AS name, iif(l.owner IS NULL, 0, max(l.expires - now, 0)) AS remaining, now
	FROM clock CROSS JOIN json_each(?1) AS j LEFT JOIN {locks} AS l ON l.name = j.value
	WHERE l.owner IS NULL OR l.expires <= now + ?2)
SELECT key, remaining, h.owner, h.expires - now, 0
FROM near LEFT JOIN {queue} AS h ON remaining = 0 AND h.seq = (
	SELECT seq FROM {queue} AS q WHERE q.name = near.name AND fair = 1 AND expires > now ORDER BY seq LIMIT 1)`,
		Publish: `INSERT INTO {queue} (name, owner, mode, fair, expires)
SELECT value->>0, value->>1, 'none', 0, {now} + ?2 FROM json_each(?1) WHERE true
ON CONFLICT (name, owner) DO UPDATE SET expires = max(expires, excluded.expires)`,
		Unpublish:   `DELETE FROM {queue} WHERE (name, owner) IN (SELECT value->>0, value->>1 FROM json_each(?1))`,
		DeleteLocks: `DELETE FROM {locks} WHERE name IN (SELECT value FROM json_each(?1)) AND expires <= {now} - ?2 AND token <= ?3`,
	}.withWords("{key}", `key`, "{fair}", `fair = 1`, "{greatest}", `max`, "{noholder}", `''`, "{from}", `?1`, "{limit}", "", "{limited}", "")
}

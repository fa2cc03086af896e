package sqllock

// sqliteDialect admits one writer at a time, and a transaction saves waiting for the
// disk.
var sqliteDialect = dialect{
	schema: sqliteSchema, statements: sqliteStatements,
	writers: 1, readers: 8, prepares: true, inserts: true, atomic: true, oneMachine: true,
	take: takeReturning, renew: renewReturning, follow: followSQLite,
	checks: []check{sqliteFile, sqliteJournal, sqliteSynchronous, sqliteTables, sqliteWritable},
}

var sqliteSchema = []string{
	// A released lock keeps its row for the sake of the token, with the
	// time of its release as expires and no owner.
	`CREATE TABLE IF NOT EXISTS {locks} (
	name    TEXT    NOT NULL PRIMARY KEY COLLATE BINARY,
	token   INTEGER NOT NULL,
	owner   TEXT,
	since   INTEGER NOT NULL,
	expires INTEGER NOT NULL,
	holder  TEXT    NOT NULL
) WITHOUT ROWID`,
	// Who waits. Places of fair waiters count in the order of seq; the
	// others are there to be seen.
	`CREATE TABLE IF NOT EXISTS {queue} (
	seq     INTEGER PRIMARY KEY,
	name    TEXT    NOT NULL COLLATE BINARY,
	owner   TEXT    NOT NULL,
	fair    INTEGER NOT NULL,
	expires INTEGER NOT NULL,
	UNIQUE (name, owner)
)`,
	// Ends with the row's seq, as every index does: the head comes first.
	`CREATE INDEX IF NOT EXISTS {queue}_order ON {queue} (name, fair)`,
	// floor is the highest token whose row was swept, swept the time of
	// the last sweep.
	`CREATE TABLE IF NOT EXISTS {meta} (
	key   TEXT    NOT NULL PRIMARY KEY,
	value INTEGER NOT NULL
) WITHOUT ROWID`,
	`INSERT OR IGNORE INTO {meta} (key, value) VALUES ('floor', 0), ('swept', 0)`,
}

func sqliteStatements() [statementCount]string {
	const (
		insertLock = `INSERT INTO {locks} AS l (name, token, owner, since, expires, holder) `
		newLock    = `?1, (SELECT value FROM {meta} WHERE key = 'floor') + 1, ?2, {now}, {now} + ?3, ?4`
		// excluded.since is the time of the attempt.
		onConflict = ` ON CONFLICT (name) DO UPDATE SET
	token   = iif(l.owner IS excluded.owner AND l.expires > excluded.since, l.token, l.token + 1),
	since   = iif(l.owner IS excluded.owner AND l.expires > excluded.since, l.since, excluded.since),
	expires = max(iif(l.owner IS excluded.owner AND l.expires > excluded.since, l.expires, 0), excluded.expires),
	owner   = excluded.owner,
	holder  = excluded.holder
WHERE (l.owner IS NULL OR l.owner = excluded.owner OR l.expires <= excluded.since) AND (?5 = 0 OR l.token = ?5)
RETURNING token`
		held    = `owner IS NOT NULL AND expires > {now}`
		head    = `FROM {queue} WHERE name = ?1 AND fair = 1 AND expires > {now} ORDER BY seq LIMIT 1`
		places  = `(SELECT value->>0 AS name, value->>1 AS owner, value->>2 AS ttl FROM json_each(?1)) AS w`
		inPlace = `{queue}.name = w.name AND {queue}.owner = w.owner AND fair = 1 AND expires > {now}`
		// A time in the future is one from before the clock stepped back.
		longAgo = `(value <= {now} - ?1 OR value > {now})`
	)
	return [statementCount]string{
		acquire: insertLock + `VALUES (` + newLock + `)` + onConflict,
		acquireFair: insertLock + `SELECT ` + newLock + `
WHERE coalesce((SELECT owner ` + head + `), ?2) = ?2
   OR EXISTS (SELECT 1 FROM {locks} WHERE name = ?1 AND owner = ?2 AND expires > {now})` + onConflict,
		current: `SELECT token, coalesce(owner <> ?2 AND expires > {now}, 0), holder, expires - {now} FROM {locks} WHERE name = ?1`,
		blocker: `SELECT token, holder, expires - {now} FROM {locks} WHERE name = ?1 AND owner <> ?2 AND expires > {now}
UNION ALL SELECT 0, '', remaining FROM (SELECT owner, expires - {now} AS remaining ` + head + `) WHERE owner <> ?2
ORDER BY token DESC LIMIT 1`,
		renew: `UPDATE {locks} SET expires = max(expires, {now} + g.ttl)
FROM (SELECT value->>0 AS name, value->>1 AS owner, value->>2 AS token, value->>3 AS ttl FROM json_each(?1)) AS g
WHERE {locks}.name = g.name AND {locks}.owner = g.owner AND (g.token = 0 OR {locks}.token = g.token) AND {locks}.expires > {now}
RETURNING name, owner`,
		release: `UPDATE {locks} SET owner = NULL, expires = {now}, holder = ''
WHERE name = ?1 AND owner = ?2 AND (?3 = 0 OR token = ?3) AND expires > {now}`,
		pass: `UPDATE {locks} SET token = token + 1, owner = ?4, since = {now}, expires = {now} + ?5, holder = ?6
WHERE name = ?1 AND owner = ?2 AND token = ?3 AND expires > {now}`,
		breakLock: `UPDATE {locks} SET owner = NULL, expires = {now}, holder = ''
WHERE name = ?1 AND token = ?2 AND ` + held,
		list: `SELECT name, token, holder, since, expires - {now},
	(SELECT count(*) FROM {queue} AS q WHERE q.name = {locks}.name AND q.expires > {now})
FROM {locks} WHERE name >= ?1 AND ` + held + ` ORDER BY name LIMIT ?2`,
		enqueue: `INSERT INTO {queue} (name, owner, fair, expires) VALUES (?1, ?2, 1, {now} + ?3)
ON CONFLICT (name, owner) DO UPDATE SET expires = max(expires, excluded.expires)`,
		keepPlaces: `UPDATE {queue} SET expires = max(expires, {now} + w.ttl) FROM ` + places + ` WHERE ` + inPlace,
		keptPlaces: `SELECT {queue}.name, {queue}.owner FROM {queue}, ` + places + ` WHERE ` + inPlace,

		leave:  `DELETE FROM {queue} WHERE name = ?1 AND owner = ?2`,
		giveUp: `DELETE FROM {queue} WHERE name = ?1 AND owner = ?2`,
		prune:  `DELETE FROM {queue} WHERE name = ?1 AND expires <= {now}`,
		// The clock is read once, not for each name.
		look: `WITH clock (now) AS MATERIALIZED (SELECT {now}), near AS MATERIALIZED (
	SELECT j.key, j.value AS name, iif(l.owner IS NULL, 0, max(l.expires - now, 0)) AS remaining, now
	FROM clock CROSS JOIN json_each(?1) AS j LEFT JOIN {locks} AS l ON l.name = j.value
	WHERE l.owner IS NULL OR l.expires <= now + ?2)
SELECT key, remaining, h.owner, h.expires - now, 0
FROM near LEFT JOIN {queue} AS h ON remaining = 0 AND h.seq = (
	SELECT seq FROM {queue} AS q WHERE q.name = near.name AND fair = 1 AND expires > now ORDER BY seq LIMIT 1)`,
		publish: `INSERT INTO {queue} (name, owner, fair, expires)
SELECT value->>0, value->>1, 0, {now} + ?2 FROM json_each(?1) WHERE true
ON CONFLICT (name, owner) DO UPDATE SET expires = max(expires, excluded.expires)`,
		unpublish: `DELETE FROM {queue}
WHERE fair = 0 AND (name, owner) IN (SELECT value->>0, value->>1 FROM json_each(?1))`,
		sweepDue:   `SELECT ` + longAgo + ` FROM {meta} WHERE key = 'swept'`,
		claimSweep: `UPDATE {meta} SET value = {now} WHERE key = 'swept' AND ` + longAgo,
		sweepPage:  `SELECT name, token, expires <= {now} - ?3 FROM {locks} WHERE name > ?1 ORDER BY name LIMIT ?2`,
		sweepLocks: `DELETE FROM {locks}
WHERE name IN (SELECT value FROM json_each(?1)) AND expires <= {now} - ?2 AND token <= ?3`,
		sweepQueue: `DELETE FROM {queue} WHERE seq IN (SELECT seq FROM {queue} WHERE expires <= {now} LIMIT ?1)`,
		floor:      `SELECT value FROM {meta} WHERE key = 'floor'`,
		raiseFloor: `UPDATE {meta} SET value = max(value, ?1) WHERE key = 'floor'`,
	}
}

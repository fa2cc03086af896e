package statement

var postgresSchema = []string{
	// Half of each page stays free, so that a row's next version fits beside it.
	`CREATE TABLE IF NOT EXISTS {locks} (
	name    text   COLLATE "C" NOT NULL PRIMARY KEY,
	token   bigint NOT NULL,
	owner   text   COLLATE "C",
	since   bigint NOT NULL,
	expires bigint NOT NULL,
	holder  text   NOT NULL
) WITH (fillfactor = 50)`,
	`CREATE TABLE IF NOT EXISTS {queue} (
	seq     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	name    text   COLLATE "C" NOT NULL,
	owner   text   COLLATE "C" NOT NULL,
	mode    text   COLLATE "C" NOT NULL,
	fair    boolean NOT NULL,
	expires bigint NOT NULL,
	UNIQUE (name, owner)
)`,
	`CREATE INDEX IF NOT EXISTS {queue}_order ON {queue} (name, fair, seq)`,
	`CREATE TABLE IF NOT EXISTS {meta} (
	key   text   NOT NULL PRIMARY KEY,
	value bigint NOT NULL
)`,
	`INSERT INTO {meta} (key, value) VALUES ('floor', 0), ('swept', 0) ON CONFLICT DO NOTHING`,
}

// postgresShortWait is what a renewal reads first. It limits to two seconds how long the renewal
// waits for a row that another transaction keeps locked. The store tries again while the caller
// waits; if the caller has left, the statement ends.
const postgresShortWait = `(SELECT set_config('lock_timeout', '2s', true)) AS lock_timeout`

// postgresLimited is a condition that limits the wait of a statement. The server evaluates it first.
const postgresLimited = `(SELECT set_config('lock_timeout', '1s', true)) <> '' AND `

// postgresNoWait lets a renewal fail at once.
const postgresNoWait = `(SELECT set_config('lock_timeout', '1ms', true)) AS lock_timeout`

func postgresTexts() texts {
	const (
		mine = `owner = ?2:text AND expires > {now}`
		take = `UPDATE {locks} SET
	token   = CASE WHEN ` + mine + ` THEN token ELSE token + ?6:int END,
	since   = CASE WHEN ` + mine + ` THEN since ELSE {now} END,
	expires = greatest(CASE WHEN ` + mine + ` THEN expires END, {now} + ?3:int),
	owner   = ?2:text,
	holder  = ?4:text
WHERE {limited}name = ?1:text AND (owner IS NULL OR owner = ?2:text OR expires <= {now}) AND (?5:int = 0 OR token = ?5:int)`
		grants = `(SELECT g->>0 AS name, g->>1 AS owner, (g->>2)::bigint AS token, (g->>3)::bigint AS ttl
	FROM jsonb_array_elements(?1:json) AS list (g)) AS g`
		granted = `l.name = g.name AND l.owner = g.owner AND (g.token = 0 OR l.token = g.token) AND l.expires > {now}`
		places  = `(SELECT w->>0 AS name, w->>1 AS owner, (w->>2)::bigint AS ttl FROM jsonb_array_elements(?1:json) AS list (w)) AS w`
		inPlace = `q.name = w.name AND q.owner = w.owner AND q.expires > {now}`
		waiters = `(SELECT w->>0 AS name, w->>1 AS owner FROM jsonb_array_elements(?1:json) AS list (w)) AS w`

		wanted = `(SELECT w->>0 AS name, w->>1 AS owner, w->>2 AS mode FROM jsonb_array_elements(?1:json) AS list (w)) AS w`
		saved  = `(SELECT r->>0 AS name, (r->>1)::bigint AS token, r->>2 AS owner, (r->>3)::bigint AS since, (r->>4)::bigint AS expires, r->>5 AS holder
	FROM jsonb_array_elements(?1:json) AS list (r)) AS r`

		readRows = `SELECT l.name, ` + row + ` FROM {locks} AS l WHERE l.name IN (SELECT jsonb_array_elements_text(?1:json))`
	)
	prolong := func(wait string) string {
		return `UPDATE {locks} AS l SET expires = greatest(l.expires, {now} + g.ttl) FROM ` + wait + `, ` + grants + `
WHERE ` + granted + `
RETURNING l.name, l.owner`
	}
	// The server notifies waiters when the change is committed, and only then.
	notify := func(id ID) string {
		return `WITH changed AS (` + commonTexts[id] + ` RETURNING name)
SELECT pg_notify('{wake}', name) FROM changed`
	}
	return texts{
		// A process that is stopped in the middle, or waits for a row, keeps no row locked for long.
		Begin:   `SELECT set_config('idle_in_transaction_session_timeout', '2s', true), set_config('lock_timeout', '1000', true)`,
		Acquire: take + ` RETURNING token`,
		AcquireFair: take + `
	AND (coalesce((SELECT owner ` + head + `), ?2:text) = ?2:text OR ` + mine + `) RETURNING token`,
		// The floor's row is locked until the new row is committed: a janitor that
		// raises the floor, before it deletes rows, waits for that.
		InsertFree: `INSERT INTO {locks} (name, token, owner, since, expires, holder)
(SELECT ?1:text, value, NULL, {now}, {now}, {noholder} FROM {meta} WHERE {limited}{key} = 'floor' FOR SHARE)
ON CONFLICT (name) DO NOTHING`,
		Renew:       prolong(postgresShortWait),
		RenewAtOnce: prolong(postgresNoWait),
		Release:     notify(Release),
		// The rows are locked in the order of their names, as those of LockAll are.
		ReleaseAll: `WITH mine AS (SELECT l.name, l.owner FROM {locks} AS l, ` + grants + ` WHERE {limited}` + granted + ` ORDER BY l.name FOR UPDATE OF l),
changed AS (UPDATE {locks} AS l SET owner = NULL, expires = {now}, holder = {noholder} FROM mine
	WHERE l.name = mine.name AND l.owner = mine.owner RETURNING mine.name, mine.owner)
SELECT name, owner FROM changed WHERE (SELECT pg_notify('{wake}', name)) IS NOT NULL`,
		Break:       notify(Break),
		GiveUpPlace: notify(GiveUpPlace),
		LockRow:     rowAndPlaces + ` WHERE l.name = ?1:text FOR UPDATE OF l`,
		ReadRows:    readRows,
		LockRows:    readRows + ` ORDER BY l.name FOR UPDATE OF l SKIP LOCKED`,
		LockAll:     eachRow(`l.name`, `w.owner`, `w.mode`) + ` FROM ` + wanted + ` JOIN {locks} AS l ON l.name = w.name ORDER BY l.name FOR UPDATE OF l`,
		InsertAll: `INSERT INTO {locks} (name, token, owner, since, expires, holder)
SELECT n.name, f.value, NULL, {now}, {now}, {noholder} FROM jsonb_array_elements_text(?1:json) AS n (name),
	(SELECT value FROM {meta} WHERE {limited}{key} = 'floor' FOR SHARE) AS f
ON CONFLICT (name) DO NOTHING`,
		SaveAll: `UPDATE {locks} AS l SET token = r.token, owner = r.owner, since = r.since, expires = r.expires, holder = r.holder
FROM ` + saved + ` WHERE l.name = r.name`,
		SaveFreed:      notify(SaveFreed),
		KeepPlaces:     `UPDATE {queue} AS q SET expires = greatest(q.expires, {now} + w.ttl) FROM ` + places + ` WHERE {limited}` + inPlace,
		UnlockedPlaces: `SELECT q.name, q.owner FROM {queue} AS q, ` + places + ` WHERE ` + inPlace + ` FOR UPDATE OF q SKIP LOCKED`,
		KeptPlaces:     `SELECT q.name, q.owner FROM {queue} AS q, ` + places + ` WHERE ` + inPlace,
		Poll: `SELECT n.index - 1, CASE WHEN l.owner IS NULL THEN 0 ELSE greatest(l.expires - {now}, 0) END,
	h.owner, h.expires - {now}, coalesce(l.since ` + recently + `, false)
FROM jsonb_array_elements_text(?1:json) WITH ORDINALITY AS n (name, index)
LEFT JOIN {locks} AS l ON l.name = n.name
LEFT JOIN LATERAL (SELECT owner, expires FROM {queue} AS q
	WHERE q.name = n.name AND fair AND q.expires > {now} AND (l.owner IS NULL OR l.expires <= {now})
	ORDER BY seq LIMIT 1) AS h ON true
WHERE l.owner IS NULL OR l.expires <= {now} + ?2:int OR l.since ` + recently,
		Publish: `INSERT INTO {queue} AS q (name, owner, mode, fair, expires)
SELECT DISTINCT name, owner, 'none', false, {now} + ?2:int FROM ` + waiters + ` WHERE {limited}true
ON CONFLICT (name, owner) DO UPDATE SET expires = greatest(q.expires, excluded.expires)`,
		Unpublish: `DELETE FROM {queue} AS q USING ` + waiters + ` WHERE {limited}q.name = w.name AND q.owner = w.owner`,
		DeleteLocks: `DELETE FROM {locks} WHERE name IN (SELECT jsonb_array_elements_text(?1:json))
	AND expires <= {now} - ?2:int AND token <= ?3:int`,
	}.withWords("{key}", `key`, "{fair}", `fair`, "{greatest}", `greatest`, "{noholder}", `''`, "{from}", `?1:text`,
		"{limit}", "", "{limited}", postgresLimited)
}

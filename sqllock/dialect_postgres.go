package sqllock

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/dlock-go/dlock/internal/sqldb"
)

// postgresPatience is what a renewal reads first. It limits to two seconds how long this
// statement waits for a row that another transaction keeps locked. The store tries again
// while the caller waits; if the caller has left, the statement ends.
const postgresPatience = `(SELECT set_config('lock_timeout', '2s', true)) AS patience`

// postgresImpatience makes it fail at once.
const postgresImpatience = `(SELECT set_config('lock_timeout', '1ms', true)) AS patience`

var postgresDialect = dialect{
	schema: postgresSchema, statements: postgresStatements,
	writers: serverSlots, renewers: spareSlots, handover: time.Millisecond,
	// Each statement is right when it sees what was committed before it,
	// whatever the program's own transactions need.
	tx: &sql.TxOptions{Isolation: sql.LevelReadCommitted},
	// A process that is stopped in the middle must not keep rows locked.
	begin: `SET LOCAL idle_in_transaction_session_timeout = '2s'`,
	take:  takeReturning, renew: renewReturning, open: checkPostgres, follow: followPostgres,
	checks: []check{postgresServer, postgresTables, checkRights, postgresDurability, postgresReplicas, checkClock, postgresWaiting},
}

var postgresSchema = []string{
	// A released lock keeps its row for the sake of the token, with the
	// time of its release as expires and no owner. Half of each page stays
	// free, so that a row's next version fits beside it.
	`CREATE TABLE IF NOT EXISTS {locks} (
	name    text   COLLATE "C" NOT NULL PRIMARY KEY,
	token   bigint NOT NULL,
	owner   text   COLLATE "C",
	since   bigint NOT NULL,
	expires bigint NOT NULL,
	holder  text   NOT NULL
) WITH (fillfactor = 50)`,
	// Who waits. Places of fair waiters count in the order of seq; the
	// others are there to be seen.
	`CREATE TABLE IF NOT EXISTS {queue} (
	seq     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	name    text   COLLATE "C" NOT NULL,
	owner   text   COLLATE "C" NOT NULL,
	fair    boolean NOT NULL,
	expires bigint NOT NULL,
	UNIQUE (name, owner)
)`,
	`CREATE INDEX IF NOT EXISTS {queue}_order ON {queue} (name, fair, seq)`,
	// floor is the highest token whose row was swept, swept the time of
	// the last sweep.
	`CREATE TABLE IF NOT EXISTS {meta} (
	key   text   NOT NULL PRIMARY KEY,
	value bigint NOT NULL
)`,
	`INSERT INTO {meta} (key, value) VALUES ('floor', 0), ('swept', 0) ON CONFLICT DO NOTHING`,
}

func postgresStatements() [statementCount]string {
	const (
		mine = `owner = ?2::text AND expires > {now}`
		take = `UPDATE {locks} SET
	token   = CASE WHEN ` + mine + ` THEN token ELSE token + 1 END,
	since   = CASE WHEN ` + mine + ` THEN since ELSE {now} END,
	expires = greatest(CASE WHEN ` + mine + ` THEN expires END, {now} + ?3::bigint),
	owner   = ?2::text,
	holder  = ?4::text
WHERE name = ?1::text AND (owner IS NULL OR owner = ?2::text OR expires <= {now}) AND (?5::bigint = 0 OR token = ?5::bigint)`
		free = `UPDATE {locks} SET owner = NULL, expires = {now}, holder = ''`
		held = `owner IS NOT NULL AND expires > {now}`
		head = `FROM {queue} WHERE name = ?1::text AND fair AND expires > {now} ORDER BY seq LIMIT 1`
		// A time in the future is one from before the clock stepped back.
		longAgo = `(value <= {now} - ?1::bigint OR value > {now})`
		grants  = `(SELECT g->>0 AS name, g->>1 AS owner, (g->>2)::bigint AS token, (g->>3)::bigint AS ttl
	FROM jsonb_array_elements(?1::jsonb) AS list (g)) AS g`
		places  = `(SELECT w->>0 AS name, w->>1 AS owner, (w->>2)::bigint AS ttl FROM jsonb_array_elements(?1::jsonb) AS list (w)) AS w`
		inPlace = `q.name = w.name AND q.owner = w.owner AND q.fair AND q.expires > {now}`
		waiters = `(SELECT w->>0 AS name, w->>1 AS owner FROM jsonb_array_elements(?1::jsonb) AS list (w)) AS w`
	)
	// What is told is told when the change is committed, and only then.
	tell := func(change string) string {
		return `WITH changed AS (` + change + ` RETURNING name)
SELECT pg_notify('{wake}', name) FROM changed`
	}
	prolong := func(limit string) string {
		return `UPDATE {locks} AS l SET expires = greatest(l.expires, {now} + g.ttl) FROM ` + limit + `, ` + grants + `
WHERE l.name = g.name AND l.owner = g.owner AND (g.token = 0 OR l.token = g.token) AND l.expires > {now}
RETURNING l.name, l.owner`
	}
	return [statementCount]string{
		acquire: take + ` RETURNING token`,
		acquireFair: take + `
	AND (coalesce((SELECT owner ` + head + `), ?2::text) = ?2::text OR ` + mine + `) RETURNING token`,
		// The floor's row is locked until the new row is committed: whoever
		// raises the floor, before deleting rows, waits for that.
		insertFree: `INSERT INTO {locks} (name, token, owner, since, expires, holder)
(SELECT ?1::text, value, NULL, {now}, {now}, '' FROM {meta} WHERE key = 'floor' FOR SHARE)
ON CONFLICT (name) DO NOTHING`,
		current: `SELECT token, coalesce(owner <> ?2::text AND expires > {now}, false), holder, expires - {now}
FROM {locks} WHERE name = ?1::text`,
		blocker: `SELECT token, holder, expires - {now} FROM {locks} WHERE name = ?1::text AND owner <> ?2::text AND expires > {now}
UNION ALL SELECT 0, '', remaining FROM (SELECT owner, expires - {now} AS remaining ` + head + `) AS h WHERE owner <> ?2::text
ORDER BY token DESC LIMIT 1`,
		renew:       prolong(postgresPatience),
		renewAtOnce: prolong(postgresImpatience),
		release: tell(free + `
WHERE name = ?1::text AND owner = ?2::text AND (?3::bigint = 0 OR token = ?3::bigint) AND expires > {now}`),
		pass: `UPDATE {locks} SET token = token + 1, owner = ?4::text, since = {now}, expires = {now} + ?5::bigint, holder = ?6::text
WHERE name = ?1::text AND owner = ?2::text AND token = ?3::bigint AND expires > {now}`,
		breakLock: tell(free + ` WHERE name = ?1::text AND token = ?2::bigint AND ` + held),
		list: `SELECT name, token, holder, since, expires - {now},
	(SELECT count(*) FROM {queue} AS q WHERE q.name = l.name AND q.expires > {now})
FROM {locks} AS l WHERE name >= ?1::text AND ` + held + ` ORDER BY name LIMIT ?2::bigint`,
		enqueue: `INSERT INTO {queue} AS q (name, owner, fair, expires) VALUES (?1::text, ?2::text, true, {now} + ?3::bigint)
ON CONFLICT (name, owner) DO UPDATE SET expires = greatest(q.expires, excluded.expires)`,
		keepPlaces: `UPDATE {queue} AS q SET expires = greatest(q.expires, {now} + w.ttl) FROM ` + places + ` WHERE ` + inPlace,
		keptPlaces: `SELECT q.name, q.owner FROM {queue} AS q, ` + places + ` WHERE ` + inPlace,

		leave:  `DELETE FROM {queue} WHERE name = ?1::text AND owner = ?2::text`,
		giveUp: tell(`DELETE FROM {queue} WHERE name = ?1::text AND owner = ?2::text`),
		prune:  `DELETE FROM {queue} WHERE name = ?1::text AND expires <= {now}`,
		look: `SELECT n.index - 1, CASE WHEN l.owner IS NULL THEN 0 ELSE greatest(l.expires - {now}, 0) END,
	h.owner, h.expires - {now}, coalesce(l.since > ` + recently + `, false)
FROM jsonb_array_elements_text(?1::jsonb) WITH ORDINALITY AS n (name, index)
LEFT JOIN {locks} AS l ON l.name = n.name
LEFT JOIN LATERAL (SELECT owner, expires FROM {queue} AS q
	WHERE q.name = n.name AND fair AND q.expires > {now} AND (l.owner IS NULL OR l.expires <= {now})
	ORDER BY seq LIMIT 1) AS h ON true
WHERE l.owner IS NULL OR l.expires <= {now} + ?2::bigint OR l.since > ` + recently + ``,
		publish: `INSERT INTO {queue} AS q (name, owner, fair, expires)
SELECT DISTINCT name, owner, false, {now} + ?2::bigint FROM ` + waiters + `
ON CONFLICT (name, owner) DO UPDATE SET expires = greatest(q.expires, excluded.expires)`,
		unpublish:  `DELETE FROM {queue} AS q USING ` + waiters + ` WHERE q.name = w.name AND q.owner = w.owner AND NOT fair`,
		sweepDue:   `SELECT ` + longAgo + ` FROM {meta} WHERE key = 'swept'`,
		claimSweep: `UPDATE {meta} SET value = {now} WHERE key = 'swept' AND ` + longAgo,
		sweepPage:  `SELECT name, token, expires <= {now} - ?3::bigint FROM {locks} WHERE name > ?1::text ORDER BY name LIMIT ?2::bigint`,
		floor:      `SELECT value FROM {meta} WHERE key = 'floor'`,
		raiseFloor: `UPDATE {meta} SET value = greatest(value, ?1::bigint) WHERE key = 'floor'`,
		sweepLocks: `DELETE FROM {locks} WHERE name IN (SELECT jsonb_array_elements_text(?1::jsonb))
	AND expires <= {now} - ?2::bigint AND token <= ?3::bigint`,
		sweepQueue: `DELETE FROM {queue} WHERE seq IN (SELECT seq FROM {queue} WHERE expires <= {now} LIMIT ?1::bigint)`,
	}
}

// checkPostgres refuses a server that cannot be written, and looks at the tables.
func checkPostgres(ctx context.Context, db *sql.DB, t sqldb.Tables) error {
	var replica, readOnly bool
	err := db.QueryRowContext(ctx, `SELECT pg_is_in_recovery(), current_setting('transaction_read_only')::boolean`).Scan(&replica, &readOnly)
	switch {
	case err != nil:
		return err
	case replica:
		return fmt.Errorf("%w: it is a replica; connect to the primary server", sqldb.ErrReadOnly)
	case readOnly:
		return fmt.Errorf("%w: default_transaction_read_only is on", sqldb.ErrReadOnly)
	}
	return checkColumns(ctx, db, t)
}

// checkColumns fails if a table or a column is missing.
func checkColumns(ctx context.Context, db *sql.DB, t sqldb.Tables) error {
	const columns = `SELECT count(*) FROM (SELECT name, token, owner, since, expires, holder FROM {locks} WHERE false) AS l,
(SELECT seq, name, owner, fair, expires FROM {queue} WHERE false) AS q, (SELECT key, value FROM {meta} WHERE false) AS m`
	var none int
	return db.QueryRowContext(ctx, t.Expand("", columns)).Scan(&none)
}

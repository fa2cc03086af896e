package sqlsession

import (
	"cmp"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/sqldb"
)

var postgresDialect = dialect{
	// A cache of the sequence would belong to a session, and other sessions would draw
	// larger numbers before.
	createFence: `CREATE SEQUENCE IF NOT EXISTS {fence} AS bigint CACHE 1`,
	createBound: `CREATE TABLE IF NOT EXISTS {bound} (
	k text PRIMARY KEY,
	name bytea NOT NULL,
	token bigint NOT NULL,
	used bigint NOT NULL,
	holder bytea
)`,
	insertFloor: `INSERT INTO {bound} (k, name, token, used) VALUES ('` + floorKey + `', '', 0, {now}) ON CONFLICT DO NOTHING`,
	// It need not be the first schema of the search_path: programs that find the same
	// table on different paths share its locks.
	home:         `SELECT relnamespace::text FROM pg_class WHERE oid = to_regclass('{table}')`,
	findsPoolers: true,
	keyOf:        func(sum [sha256.Size]byte) any { return int64(binary.BigEndian.Uint64(sum[:])) },
	placeOf:      func(sum [sha256.Size]byte) any { return int64(binary.BigEndian.Uint64(sum[8:])) },
	examine:      examinePostgres,
	checks: []func(context.Context, sqldb.Queryer) (driver.Finding, error){sqldb.PostgresServer, tokenDurability.Postgres,
		tokenDurability.PostgresReplicas, sqldb.PostgresEncryption},
	startTokens:    startPostgresTokens,
	setFingerprint: setPostgresFingerprint,
	raiseToken:     raisePostgresToken,
	lockRow:        lockPostgresRow,
}

// isPooledFailure recognizes a statement that this session has not prepared, or that another
// client has prepared in it.
func isPooledFailure(err error) bool {
	state := sqldb.SQLState(err)
	return state == "26000" || state == "42P05" || state == "08P01"
}

// postgresSettings reads what the store has to know about the server. Times are in
// milliseconds.
const postgresSettings = `SELECT name, setting FROM pg_settings WHERE name IN ('server_version', 'server_version_num',
'idle_in_transaction_session_timeout', 'idle_session_timeout', 'transaction_timeout', 'max_connections')`

// postgresKeys are the keys of all advisory locks in the database.
const postgresKeys = `SELECT classid::bigint << 32 | objid::bigint FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1 AND granted
	AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`

func examinePostgres(ctx context.Context, conn *sql.Conn, facts *sqldb.Facts, t *sqldb.Tables) (*server, error) {
	var schema sql.NullString
	settings, err := readSettings(ctx, conn, postgresSettings)
	if err == nil {
		err = sqldb.CheckPostgres(ctx, conn)
	}
	if err == nil {
		err = conn.QueryRowContext(ctx, `SELECT current_schema()`).Scan(&schema)
	}
	if err != nil {
		return nil, err
	}
	version, unknown := strconv.Atoi(settings["server_version_num"])
	connections, err := strconv.Atoi(settings["max_connections"])
	switch {
	case unknown != nil || err != nil:
		return nil, fmt.Errorf("unknown version or max_connections: %w", errors.Join(unknown, err))
	case version < 12_00_00:
		return nil, fmt.Errorf("%w: version %s: PostgreSQL 12 is needed", driver.ErrUnsupported, settings["server_version"])
	case schema.String == "":
		return nil, fmt.Errorf("%w: no schema in the search_path exists", driver.ErrMisconfigured)
	}
	const idleInTransaction = "SET SESSION idle_in_transaction_session_timeout = "
	server := &server{
		identity:   `SELECT pg_backend_pid()::text`,
		releaseAll: []string{`ROLLBACK`, `SELECT pg_advisory_unlock_all()`},
		// The start of a session is NULL if the user, which another connection may have, may not see it.
		findSession: `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE pid = {id} AND ` + serverStart + ` = split_part('{fingerprint}', ' ', 1)
	AND coalesce(` + sessionStart + ` = nullif(split_part('{fingerprint}', ' ', 2), ''), true))`,
		killSession: `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid = {id} AND '{fingerprint}' = ` + serverStart + ` || ' ' || ` + sessionStart,
		texts:       postgresStatements(t.Fence),
		skip:        postgresSkip(t.Fence, connections),
		readRow:     facts.Bind(t.Expand(facts.Now, `SELECT token, holder, ?2:int IN (`+postgresKeys+`) FROM {bound} WHERE k = ?1`)),
		limitIdle:   idleInTransaction + `'2s'`,
		unlimitIdle: idleInTransaction + settings["idle_in_transaction_session_timeout"],
	}
	for _, name := range []string{"idle_in_transaction_session_timeout", "idle_session_timeout", "transaction_timeout"} {
		ms, _ := strconv.ParseInt(settings[name], 10, 64) // a setting that is missing is no timeout
		// transaction_timeout counts from the beginning of a transaction; see addMySQLSettings about the others.
		if isShort(time.Duration(ms)*time.Millisecond) || ms > 0 && name == "transaction_timeout" {
			server.settings = append(server.settings, fmt.Sprintf("SET SESSION %s = 0", name))
			server.restore = append(server.restore, fmt.Sprintf("SET SESSION %s = %d", name, ms))
		}
	}
	return server, nil
}

// postgresStatements returns the statements of Session. An exclusive waiter holds a second advisory
// lock, its place, which shared requests give way to. The server frees it with the session.
func postgresStatements(sequence string) sessionTexts {
	const keys, placeKeys = `string_to_array(trim('[]' FROM $1), ',')::bigint[]`, `string_to_array(trim('[]' FROM $2), ',')::bigint[]`
	return sessionTexts{
		// Reading pg_locks costs more the more locks the server has, so that it comes last.
		stmtAcquire: fmt.Sprintf(`SELECT CASE WHEN pg_try_advisory_lock($1) THEN nextval('%s')
WHEN pg_try_advisory_xact_lock(%s) THEN NULL WHEN $1 IN (%s AND mode = 'ShareLock') THEN %d END`,
			sequence, sequenceLock(sharesLock, sequence), postgresKeys, answerShared),
		stmtRelease:  `SELECT pg_advisory_unlock($1)`,
		stmtFindFree: `SELECT i FROM unnest(` + keys + `) WITH ORDINALITY AS watched (k, i) WHERE k NOT IN (` + postgresKeys + `)`,
		stmtAnnounce: fmt.Sprintf(`SELECT pg_advisory_lock_shared(%s)`, sequenceLock(sharesLock, sequence)),
		stmtAcquireShared: fmt.Sprintf(`SELECT CASE WHEN $2 IN (%s) THEN 0 WHEN pg_try_advisory_lock_shared($1) THEN nextval('%s') END`,
			postgresKeys, sequence),
		stmtReleaseShared: `SELECT pg_advisory_unlock_shared($1)`,
		stmtFindShareable: `SELECT i FROM unnest(` + keys + `, ` + placeKeys + `) WITH ORDINALITY AS watched (k, p, i)
WHERE k NOT IN (` + postgresKeys + ` AND mode = 'ExclusiveLock') AND p NOT IN (` + postgresKeys + `)`,
		stmtDowngrade:  `SELECT CASE WHEN pg_try_advisory_lock_shared($1) THEN pg_advisory_unlock($1) ELSE false END`,
		stmtTakePlace:  `SELECT pg_advisory_lock_shared($1)`, // which no session has exclusively
		stmtLeavePlace: `SELECT pg_advisory_unlock_shared($1)`,
	}
}

// postgresNoWait is the end of a condition for locking a row. It skips a row that is locked, because NOWAIT
// would be an error, which the server writes to its log. PostgreSQL waits all the same in one case: the
// statement finds the row being updated, the update is committed, and a holder has locked the new version.
// So the wait has a limit.
const postgresNoWait = ` AND set_config('lock_timeout', '50ms', true) <> '' FOR UPDATE SKIP LOCKED`

// postgresLocked recognizes the error of a row that is locked.
func postgresLocked(err error) error {
	if sqldb.SQLState(err) == "55P03" {
		return errRowLocked
	}
	return err
}

// raisePostgresToken implements dialect.raiseToken.
func raisePostgresToken(ctx context.Context, s *Store, c *conn, h *heldLock) (token uint64, err error) {
	err = c.raw.QueryRowContext(ctx, `WITH free AS MATERIALIZED (SELECT k FROM `+s.tables.Bound+` WHERE k = $1`+postgresNoWait+`)
UPDATE `+s.tables.Bound+` AS row SET token = row.token + 1, used = `+s.facts.Now+`, holder = $2 FROM free WHERE row.k = free.k
RETURNING row.token, pg_backend_pid()::text, `+postgresFingerprint,
		h.key.row, []byte(h.holder.Encode())).Scan(&token, &c.id, &c.fingerprint)
	if !errors.Is(err, sql.ErrNoRows) {
		return token, postgresLocked(err)
	}
	// If there is no row, the statement locks the floor until the new row is committed: the
	// janitor, which raises the floor before it deletes rows, waits for that.
	inserted, err := c.raw.ExecContext(ctx, `INSERT INTO `+s.tables.Bound+` (k, name, token, used)
SELECT $1, $2, coalesce((SELECT token FROM `+s.tables.Bound+` WHERE k = '`+floorKey+`' FOR SHARE), 0), `+s.facts.Now+`
WHERE set_config('lock_timeout', '50ms', true) <> '' AND NOT EXISTS (SELECT FROM `+s.tables.Bound+` WHERE k = $1) ON CONFLICT DO NOTHING`,
		h.key.row, []byte(h.name))
	if err != nil {
		return 0, postgresLocked(err)
	}
	if n, err := inserted.RowsAffected(); err != nil || n == 0 {
		return 0, cmp.Or(err, errRowLocked)
	}
	return 0, errRowNew
}

// lockPostgresRow implements dialect.lockRow. See lockMySQLRow about the wait.
func lockPostgresRow(ctx context.Context, s *Store, c *conn, key lockKey, token uint64) error {
	if err := sqldb.ExecAll(ctx, c.raw, `BEGIN ISOLATION LEVEL READ COMMITTED`); err != nil {
		return err
	}
	var now uint64
	var locked string
	err := c.raw.QueryRowContext(ctx, `WITH mine AS MATERIALIZED (SELECT token FROM `+s.tables.Bound+` WHERE k = $1`+postgresNoWait+`)
SELECT token, pg_advisory_xact_lock($2)::text FROM mine`, key.row, key.server).Scan(&now, &locked)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return errRowLocked
	case err == nil && now != token:
		return errLostRace
	}
	return postgresLocked(err)
}

// postgresFingerprint is when the server and the session were started, in microseconds: a session of
// another server, or after a restart, may have the same process id.
const (
	serverStart         = `(date_part('epoch', pg_postmaster_start_time()) * 1000000)::bigint::text`
	sessionStart        = `(date_part('epoch', backend_start) * 1000000)::bigint::text`
	postgresFingerprint = `(SELECT concat(` + serverStart + `, ' ', ` + sessionStart + `) FROM pg_stat_get_activity(pg_backend_pid()))`
)

func setPostgresFingerprint(ctx context.Context, c *conn) error {
	return c.raw.QueryRowContext(ctx, `SELECT `+postgresFingerprint).Scan(&c.fingerprint)
}

// Tokens of Session on PostgreSQL come from a sequence, in the statement that acquires the
// lock. The server logs a sequence in blocks. A session that begins a block waits until the
// block is on the disk, but sessions that draw from it meanwhile do not. So a crash can undo
// numbers that were granted: at most a block for each connection. Before the first token after
// a crash is drawn, the store skips that many numbers, and waits until that is on the disk.
//
// A shared lock, which ends with the server, tells whether this was done since the server was
// started: every session that draws tokens holds it. While no session holds it, no session
// draws tokens from behind numbers that are being skipped, which a crash would undo.

const (
	// logBlock is how many numbers the server logs at once: SEQ_LOG_VALS and the
	// one that is drawn.
	logBlock = 33
	// skipMargin is for blocks of statements that failed, which do not wait.
	skipMargin = 2
)

// The classes of the locks that belong to a sequence.
const (
	skipLock = 0x646c6b01 // of the session that skips numbers
	drawLock = 0x646c6b02 // shared by all sessions that draw
	// sharesLock is shared by all sessions that have or had shared locks. A request that can have it
	// exclusively, until its statement ends, was not refused by a shared lock.
	sharesLock = 0x646c6b03
)

// sequenceLock is the key of a lock that belongs to a sequence.
func sequenceLock(class int, sequence string) string {
	return fmt.Sprintf(`%d::bigint << 32 | to_regclass('%s')::oid::bigint`, class, sequence)
}

// postgresSkip returns the statements that come before tokens are drawn from a sequence of a
// server that allows so many connections.
//
// Each is a transaction of its own, so that a client that stops does not block others. The
// CASE of each fixes the order of its steps. The first holds its lock until what it has done
// is on the disk. The second takes drawLock. Before that it takes skipLock in the shared mode, and
// so waits until no session skips numbers: a session that skips must find drawLock free.
func postgresSkip(sequence string, connections int) []string {
	return []string{
		fmt.Sprintf(`SELECT CASE pg_advisory_xact_lock(%s)::text WHEN '' THEN CASE WHEN NOT EXISTS (
	SELECT FROM pg_locks WHERE locktype = 'advisory' AND classid = %d AND objid = to_regclass('%s') AND objsubid = 1 AND granted
	AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))
THEN (SELECT max(nextval('%s')) FROM generate_series(1, %d)) END END`,
			sequenceLock(skipLock, sequence), drawLock, sequence, sequence, skipMargin*logBlock*connections),
		fmt.Sprintf(`SELECT CASE pg_advisory_xact_lock_shared(%s)::text WHEN '' THEN pg_advisory_lock_shared(%s)::text END`,
			sequenceLock(skipLock, sequence), sequenceLock(drawLock, sequence)),
	}
}

func startPostgresTokens(ctx context.Context, s *Store, conn *sql.Conn) (uint64, error) {
	return 0, sqldb.ExecAll(ctx, conn, s.server.skip...)
}

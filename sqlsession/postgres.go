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
	"github.com/dlock-go/dlock/internal/span"
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
	home:           `SELECT relnamespace::text FROM pg_class WHERE oid = to_regclass('{table}')`,
	findsPoolers:   true,
	keyOf:          func(sum [sha256.Size]byte) any { return int64(binary.BigEndian.Uint64(sum[:])) },
	examine:        examinePostgres,
	diagnose:       diagnosePostgres,
	numberSpan:     span.Size,
	startTokens:    startPostgresTokens,
	setFingerprint: setPostgresFingerprint,
	raiseToken:     raisePostgresToken,
	lockRow:        lockPostgresRow,
	isRetryable:    func(err error) bool { return sqldb.SQLState(err) == "40001" || sqldb.SQLState(err) == "40P01" },
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
		findFree:   `SELECT i FROM unnest(string_to_array(trim('[]' FROM $1), ',')::bigint[]) WITH ORDINALITY AS watched (k, i) WHERE k NOT IN (` + postgresKeys + `)`,
		// The start of a session is NULL if the user may not see it.
		findSession: `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE pid = {id} AND coalesce(date_part('epoch', backend_start) <= {fingerprint}, true))`,
		killSession: `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid = {id} AND date_part('epoch', backend_start) <= {fingerprint}`,
		acquire:     `SELECT CASE WHEN pg_try_advisory_lock($1) THEN nextval('` + t.Fence + `') END`,
		skip:        postgresSkip(t.Fence, connections),
		release:     `SELECT pg_advisory_unlock($1)`,
		readRow:     facts.Bind(t.Expand(facts.Now, `SELECT token, holder, ?2:int IN (`+postgresKeys+`) FROM {bound} WHERE k = ?1`)),
		now:         facts.Now,
		clean:       newCleanQueries(t, facts),
		table:       t.Bound,
	}
	server.clean.limitIdle = []string{idleInTransaction + `'2s'`}
	server.clean.restore = []string{idleInTransaction + settings["idle_in_transaction_session_timeout"]}
	addPostgresSettings(server, settings)
	return server, nil
}

// addPostgresSettings is addMySQLSettings for PostgreSQL. One of its timeouts counts from the
// beginning of a transaction.
func addPostgresSettings(server *server, settings map[string]string) {
	for _, name := range []string{"idle_in_transaction_session_timeout", "idle_session_timeout", "transaction_timeout"} {
		ms, _ := strconv.ParseInt(settings[name], 10, 64) // a setting that is missing is no timeout
		if isShort(time.Duration(ms)*time.Millisecond) || ms > 0 && name == "transaction_timeout" {
			server.settings = append(server.settings, fmt.Sprintf("SET SESSION %s = 0", name))
			server.restore = append(server.restore, fmt.Sprintf("SET SESSION %s = %d", name, ms))
		}
	}
}

// raisePostgresToken implements dialect.raiseToken. It skips a row that is locked, because
// NOWAIT would be an error, which the server writes to its log.
func raisePostgresToken(ctx context.Context, c *conn, server *server, h *heldLock) (token uint64, err error) {
	err = c.raw.QueryRowContext(ctx, `WITH free AS MATERIALIZED (SELECT k FROM `+server.table+` WHERE k = $1 FOR UPDATE SKIP LOCKED)
UPDATE `+server.table+` AS row SET token = row.token + $3, used = `+server.now+`, holder = $2 FROM free WHERE row.k = free.k
RETURNING row.token, pg_backend_pid()::text, `+postgresFingerprint,
		h.key.row, []byte(h.holder.Encode()), int64(h.span)).Scan(&token, &c.id, &c.fingerprint)
	if !errors.Is(err, sql.ErrNoRows) {
		return token, err
	}
	// If there is no row, the statement locks the floor until the new row is committed: the
	// janitor, which raises the floor before it deletes rows, waits for that.
	inserted, err := c.raw.ExecContext(ctx, `INSERT INTO `+server.table+` (k, name, token, used)
SELECT $1, $2, coalesce((SELECT token FROM `+server.table+` WHERE k = '`+floorKey+`' FOR SHARE), 0), `+server.now+`
WHERE NOT EXISTS (SELECT FROM `+server.table+` WHERE k = $1) ON CONFLICT DO NOTHING`,
		h.key.row, []byte(h.name))
	if err != nil {
		return 0, err
	}
	if n, err := inserted.RowsAffected(); err != nil || n == 0 {
		return 0, cmp.Or(err, errRowLocked)
	}
	return 0, errRowNew
}

// lockPostgresRow implements dialect.lockRow. See lockMySQLRow about the wait.
func lockPostgresRow(ctx context.Context, c *conn, server *server, key lockKey, token uint64) error {
	if err := sqldb.ExecAll(ctx, c.raw, `BEGIN ISOLATION LEVEL READ COMMITTED`); err != nil {
		return err
	}
	var now uint64
	var locked string
	err := c.raw.QueryRowContext(ctx, `WITH mine AS MATERIALIZED (SELECT token FROM `+server.table+` WHERE k = $1 FOR UPDATE SKIP LOCKED)
SELECT token, pg_advisory_xact_lock($2)::text FROM mine`, key.row, key.server).Scan(&now, &locked)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return errRowLocked
	case err == nil && now != token:
		return errLostRace
	}
	return err
}

// postgresFingerprint is a time at which the session exists. A later session with the same process
// id starts after it.
const postgresFingerprint = `date_part('epoch', statement_timestamp())::text`

func setPostgresFingerprint(ctx context.Context, c *conn) error {
	return c.raw.QueryRowContext(ctx, `SELECT `+postgresFingerprint).Scan(&c.fingerprint)
}

func diagnosePostgres(ctx context.Context, conn *sql.Conn) ([]driver.Finding, error) {
	settings, err := readSettings(ctx, conn, postgresSettings)
	if err != nil {
		return nil, err
	}
	readOnly := sqldb.CheckPostgres(ctx, conn)
	if readOnly != nil && !errors.Is(readOnly, sqldb.ErrReadOnly) {
		return nil, readOnly
	}
	replicas, waits, err := sqldb.PostgresReplicas(ctx, conn)
	if err != nil {
		return nil, err
	}
	durability, err := tokenDurability.Postgres(ctx, conn)
	if err != nil {
		return nil, err
	}
	return []driver.Finding{
		sqldb.Fine("version", settings["server_version"]),
		readOnlyFinding(readOnly != nil),
		durability,
		sqldb.Fine("idle_timeouts", "The store keeps them from connections that hold locks."),
		replicaFinding(replicas, waits),
	}, nil
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
)

// postgresSkip returns the statements that come before tokens are drawn from a sequence of a
// server that allows so many connections.
//
// Each is a transaction of its own, so that a client that stops does not block others. The
// CASE of each fixes the order of its steps. The first holds its lock until what it has done
// is on the disk. The second waits for other sessions that skip, so that they do it while no
// session has the lock that it takes.
func postgresSkip(sequence string, connections int) []string {
	key := func(class int) string {
		return fmt.Sprintf(`%d::bigint << 32 | to_regclass('%s')::oid::bigint`, class, sequence)
	}
	return []string{
		fmt.Sprintf(`SELECT CASE pg_advisory_xact_lock(%s)::text WHEN '' THEN CASE WHEN NOT EXISTS (
	SELECT FROM pg_locks WHERE locktype = 'advisory' AND classid = %d AND objid = to_regclass('%s') AND objsubid = 1 AND granted
	AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))
THEN (SELECT max(nextval('%s')) FROM generate_series(1, %d)) END END`,
			key(skipLock), drawLock, sequence, sequence, skipMargin*logBlock*connections),
		fmt.Sprintf(`SELECT CASE pg_advisory_xact_lock_shared(%s)::text WHEN '' THEN pg_advisory_lock_shared(%s)::text END`,
			key(skipLock), key(drawLock)),
	}
}

func startPostgresTokens(ctx context.Context, conn *sql.Conn, server *server) (uint64, error) {
	return 0, sqldb.ExecAll(ctx, conn, server.skip...)
}

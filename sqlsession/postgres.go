package sqlsession

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/sqldb"
)

var postgresDialect = dialect{
	schema: schema{
		// A cache of the sequence would belong to a session, and other sessions would
		// draw larger numbers before.
		fence: `CREATE SEQUENCE IF NOT EXISTS {fence} AS bigint CACHE 1`,
		bound: `CREATE TABLE IF NOT EXISTS {bound} (
	k text PRIMARY KEY,
	name bytea NOT NULL,
	token bigint NOT NULL,
	used bigint NOT NULL,
	holder bytea
)`,
		floor: `INSERT INTO {bound} (k, name, token, used) VALUES ('` + floorKey + `', '', 0, {now}) ON CONFLICT DO NOTHING`,
	},
	// It need not be the first schema of the search_path: programs that find the same
	// table on different paths share its locks.
	home: `SELECT relnamespace::text FROM pg_class WHERE oid = to_regclass('{table}')`,
	// A setting of the session lives as long as a lock of the session would, and one that
	// is left behind is in no other program's way.
	pooler: &poolerProbe{
		set:   `SELECT set_config('dlock.session', $1 || pg_backend_pid(), false)`,
		isSet: `SELECT coalesce(current_setting('dlock.session', true), '') = $1 || pg_backend_pid()`,
		clear: `SET dlock.session = ''`,
	},
	keyOf:       postgresKey,
	list:        postgresList,
	examine:     examinePostgres,
	diagnose:    diagnosePostgres,
	startTokens: startPostgresTokens,
	guard:       guardPostgres,
	claimRow:    claimPostgresRow,
	pinRow:      pinPostgresRow,
	failureOf:   postgresFailure,
}

// postgresSettings are what is asked of the server. Times are in milliseconds.
const postgresSettings = `SELECT name, setting FROM pg_settings WHERE name IN ('server_version', 'server_version_num', 'transaction_read_only',
'idle_in_transaction_session_timeout', 'idle_session_timeout', 'transaction_timeout', 'synchronous_commit', 'fsync', 'max_connections')`

func examinePostgres(ctx context.Context, conn *sql.Conn, facts *sqldb.Facts, t *sqldb.Tables) (*server, error) {
	settings, err := readSettings(ctx, conn, postgresSettings)
	if err != nil {
		return nil, err
	}
	var schema sql.NullString
	var replica bool
	if err := conn.QueryRowContext(ctx, `SELECT current_schema(), pg_is_in_recovery()`).Scan(&schema, &replica); err != nil {
		return nil, err
	}
	version, err := strconv.Atoi(settings["server_version_num"])
	switch {
	case err != nil:
		return nil, fmt.Errorf("the version is not understood: %w", err)
	case version < 12_00_00:
		return nil, fmt.Errorf("%w: version %s: PostgreSQL 12 is needed", driver.ErrUnsupported, settings["server_version"])
	case replica:
		return nil, fmt.Errorf("%w: the server is a replica, and its locks keep nobody out elsewhere: connect to the primary", driver.ErrUnsupported)
	case settings["transaction_read_only"] == "on":
		return nil, fmt.Errorf("%w: transactions are read-only (default_transaction_read_only)", driver.ErrUnsupported)
	case schema.String == "":
		return nil, errors.New("no schema in the search_path exists")
	}
	connections, err := strconv.Atoi(settings["max_connections"])
	if err != nil {
		return nil, fmt.Errorf("max_connections is not understood: %w", err)
	}
	server := &server{
		version:    settings["server_version"],
		identity:   `SELECT pg_backend_pid()::text`,
		releaseAll: []string{`ROLLBACK`, `SELECT pg_advisory_unlock_all()`},

		// The start of a session is NULL to users who may not see it.
		findSession: `SELECT EXISTS (SELECT FROM pg_stat_activity WHERE pid = {id} AND coalesce(date_part('epoch', backend_start) <= {guard}, true))`,
		killSession: `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid = {id} AND date_part('epoch', backend_start) <= {guard}`,
		look: `SELECT i FROM unnest(string_to_array($1, ',')::bigint[]) WITH ORDINALITY AS watched (k, i) WHERE k NOT IN (
	SELECT classid::bigint << 32 | objid::bigint FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 1 AND granted
	AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))`,
		acquire: `SELECT CASE WHEN pg_try_advisory_lock($1) THEN nextval('` + t.Fence + `') END`,
		draw:    `SELECT nextval('` + t.Fence + `')`,
		leap:    postgresLeap(t.Fence, connections),
		release: `SELECT pg_advisory_unlock($1)`,
		readRow: t.Expand(facts.Now, `SELECT token, holder, used <= {now} - `+janitorMillis+` FROM {bound} WHERE k = $1`),
		now:     facts.Now,
		janitor: newJanitorQueries(t, facts, `FOR SHARE`),
		table:   t.Bound,
	}
	server.janitor.guarded = []string{`SET SESSION idle_in_transaction_session_timeout = '2s'`}
	server.janitor.restore = []string{`SET SESSION idle_in_transaction_session_timeout = ` + settings["idle_in_transaction_session_timeout"]}
	addPostgresSettings(server, settings)
	return server, nil
}

// addPostgresSettings keeps connections alive that idle. Others are used once a second,
// which is enough for timeouts that are longer, but not for one that counts from
// the beginning of a transaction.
func addPostgresSettings(server *server, settings map[string]string) {
	for _, name := range []string{"idle_in_transaction_session_timeout", "idle_session_timeout", "transaction_timeout"} {
		ms, _ := strconv.ParseInt(settings[name], 10, 64) // what is not there is no timeout
		if isShort(time.Duration(ms)*time.Millisecond) || ms > 0 && name == "transaction_timeout" {
			server.settings = append(server.settings, fmt.Sprintf("SET SESSION %s = 0", name))
			server.restore = append(server.restore, fmt.Sprintf("SET SESSION %s = %d", name, ms))
		}
	}
}

func postgresKey(sum [sha256.Size]byte) any {
	return int64(binary.BigEndian.Uint64(sum[:]))
}

func postgresList(keys []any) string {
	var text strings.Builder
	for i, key := range keys {
		if i > 0 {
			text.WriteByte(',')
		}
		text.WriteString(strconv.FormatInt(key.(int64), 10))
	}
	return text.String()
}

// claimPostgresRow is a claimFunc. Rows that are locked are skipped, because
// not to wait for them is an error, which the server would write to its log.
func claimPostgresRow(ctx context.Context, conn *sql.Conn, server *server, h *heldLock) (token uint64, err error) {
	err = conn.QueryRowContext(ctx, `WITH free AS MATERIALIZED (SELECT k FROM `+server.table+` WHERE k = $1 FOR UPDATE SKIP LOCKED)
UPDATE `+server.table+` AS row SET token = row.token + 1, used = `+server.now+`, holder = $2 FROM free WHERE row.k = free.k RETURNING row.token`,
		h.key.row, []byte(h.holder.Encode())).Scan(&token)
	if !errors.Is(err, sql.ErrNoRows) {
		return token, err
	}
	// The floor is locked until the new row is committed: whoever raises it,
	// before deleting rows, waits for that.
	inserted, err := conn.ExecContext(ctx, `INSERT INTO `+server.table+` (k, name, token, used)
SELECT $1, $2, coalesce((SELECT token FROM `+server.table+` WHERE k = '`+floorKey+`' FOR SHARE), 0), `+server.now+` ON CONFLICT DO NOTHING`,
		h.key.row, []byte(h.name))
	if err != nil {
		return 0, err
	}
	switch n, err := inserted.RowsAffected(); {
	case err != nil:
		return 0, err
	case n == 1:
		return 0, errRowNew
	}
	return 0, errRowLocked
}

// pinPostgresRow is a pinFunc. The one who had the mark before has given up
// the row, so the wait for the mark is short.
func pinPostgresRow(ctx context.Context, c *conn, server *server, key lockKey, token uint64) error {
	if err := execAll(ctx, c.raw, `BEGIN ISOLATION LEVEL READ COMMITTED`); err != nil {
		return err
	}
	var now uint64
	var marked string
	err := c.raw.QueryRowContext(ctx, `WITH mine AS MATERIALIZED (SELECT token FROM `+server.table+` WHERE k = $1 FOR UPDATE SKIP LOCKED)
SELECT token, pg_backend_pid()::text, `+postgresGuard+`, pg_advisory_xact_lock($2)::text FROM mine`, key.row, key.server).Scan(&now, &c.id, &c.guard, &marked)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return errRowLocked
	case err == nil && now != token:
		return errFaster
	}
	return err
}

// postgresGuard is a time at which the session exists. A later session with the same process
// id starts after it.
const postgresGuard = `date_part('epoch', statement_timestamp())::text`

func guardPostgres(ctx context.Context, c *conn) error {
	return c.raw.QueryRowContext(ctx, `SELECT `+postgresGuard).Scan(&c.guard)
}

func postgresFailure(err error) failure {
	switch sqldb.SQLState(err) {
	case "40001", "40P01":
		return retryFailure
	case "26000", "42P05", "08P01": // a statement that this session has not prepared, or another has
		return pooledFailure
	}
	return otherFailure
}

func diagnosePostgres(ctx context.Context, conn *sql.Conn) ([]driver.Finding, error) {
	settings, err := readSettings(ctx, conn, postgresSettings)
	if err != nil {
		return nil, err
	}
	var replica, waits bool
	var replicas int
	err = conn.QueryRowContext(ctx, `SELECT pg_is_in_recovery(), (SELECT count(*) FROM pg_stat_replication),
	current_setting('synchronous_standby_names') <> '' AND current_setting('synchronous_commit') NOT IN ('off', 'local')`).Scan(&replica, &replicas, &waits)
	if err != nil {
		return nil, err
	}
	findings := []driver.Finding{
		sqldb.Fine("version", settings["server_version"]),
		readOnlyFinding(replica || settings["transaction_read_only"] == "on"),
		sqldb.Fine("durability", durableTokens),
		sqldb.Fine("idle_timeouts", "Connections that hold locks are kept from them."),
		replicaFinding(replicas, waits),
	}
	if settings["synchronous_commit"] == "off" || settings["fsync"] == "off" {
		findings[2] = sqldb.Warning("durability", "synchronous_commit is %s and fsync is %s: after a crash tokens may be granted again. Set both to on.",
			settings["synchronous_commit"], settings["fsync"])
	}
	return findings, nil
}

package sqlsession

import (
	"context"
	"database/sql"
	"fmt"
)

// Tokens of Session on PostgreSQL come from a sequence, in the statement that takes
// the lock. The server logs a sequence in blocks: whoever begins one waits until it
// is on the disk, but those who draw from it meanwhile do not, so that a crash can
// undo numbers that were granted. They are no more than a block for each connection,
// since who has begun one waits. So that many numbers are thrown away, and that is on
// the disk, before the first token after a crash is drawn.
//
// Whether this was done since the server was started is told by a lock that ends with
// the server, and that everybody shares who draws tokens: it was if somebody has the
// lock. If nobody has it nobody draws tokens, so that none is from behind numbers
// that are being thrown away, with which a crash would undo it.

const (
	// logBlock is how many numbers the server logs at once: SEQ_LOG_VALS and the
	// one that is drawn.
	logBlock = 33
	// leapMargin is for blocks of statements that failed, which do not wait.
	leapMargin = 2
)

// The locks, beside the sequence that they belong to.
const (
	leapLock = 0x646c6b01 // of the one who leaps
	riseLock = 0x646c6b02 // shared by all who draw
)

// postgresLeap are the statements that come before tokens are drawn from a sequence
// of a server that allows so many connections.
//
// Each is a transaction, which a client that is stopped cannot hold up. Their CASE
// says in which order things are done, and the lock of the first is there until what
// it has done is on the disk. The second waits for others who leap, so that these
// draw while nobody has the lock that it takes.
func postgresLeap(sequence string, connections int) []string {
	key := func(class int) string {
		return fmt.Sprintf(`%d::bigint << 32 | to_regclass('%s')::oid::bigint`, class, sequence)
	}
	return []string{
		fmt.Sprintf(`SELECT CASE pg_advisory_xact_lock(%s)::text WHEN '' THEN CASE WHEN NOT EXISTS (
	SELECT FROM pg_locks WHERE locktype = 'advisory' AND classid = %d AND objid = to_regclass('%s') AND objsubid = 1 AND granted
	AND database = (SELECT oid FROM pg_database WHERE datname = current_database()))
THEN (SELECT max(nextval('%s')) FROM generate_series(1, %d)) END END`,
			key(leapLock), riseLock, sequence, sequence, leapMargin*logBlock*connections),
		fmt.Sprintf(`SELECT CASE pg_advisory_xact_lock_shared(%s)::text WHEN '' THEN pg_advisory_lock_shared(%s)::text END`,
			key(leapLock), key(riseLock)),
	}
}

// startPostgresTokens throws away numbers where a crash may have brought them back.
func startPostgresTokens(ctx context.Context, conn *sql.Conn, server *server) (uint64, error) {
	return 0, execAll(ctx, conn, server.leap...)
}

package sqlsession

import (
	"context"
	"database/sql"
	"time"

	"github.com/dlock-go/dlock/internal/sqldb"
)

// The janitor deletes rows of ForUpdate that were not locked for long, at the same intervals
// as the janitor of package sqllock. One row is no lock: the floor. Its token is the highest
// that was deleted, where new rows begin, and its time is that of the last run.
const (
	floorKey = "floor" // no hash of a name
	// firstKey comes before every hash. It is not empty: MariaDB takes an empty text for NULL in mode
	// EMPTY_STRING_IS_NULL.
	firstKey = "0"
	// janitorRows is how many rows are deleted at once. Meanwhile new rows have to wait.
	janitorRows = 100
	// janitorLimit is how long the janitor waits for a connection of the pool.
	janitorLimit = time.Second
)

// What the janitor sends.
const (
	isFloor = `k = '` + floorKey + `'`
	noFloor = `k <> '` + floorKey + `'`              // in MySQL a mode decides what NOT refers to
	longAgo = `(used <= {now} - ?1 OR used > {now})` // the clock may have stepped back

	janitorDue   = `SELECT ` + longAgo + ` FROM {bound} WHERE ` + isFloor                 // interval -> whether the last run is as long ago
	janitorClaim = `UPDATE {bound} SET used = {now} WHERE ` + isFloor + ` AND ` + longAgo // interval; changes nothing if the janitor is not due
	// after key, limit, age -> key, token, whether it may be deleted
	janitorPage = `SELECT k, token, used <= {now} - ?3 FROM {bound} WHERE k > ?1 AND ` + noFloor + ` ORDER BY k LIMIT ?2`
	raiseFloor  = `UPDATE {bound} SET token = GREATEST(token, ?1) WHERE ` + isFloor
	// after key, last key, age, token -> keys, whose rows it locks
	lockOldRows = `SELECT k FROM {bound} WHERE k > ?1 AND k <= ?2 AND ` + noFloor + ` AND used <= {now} - ?3 AND token <= ?4` + sqldb.MySQLAllRows + ` FOR UPDATE SKIP LOCKED`
)

// bind returns a text in the form in which the server takes it, and its arguments.
func (s *Store) bind(text string, args ...any) (string, []any) {
	q := s.facts.Bind(s.tables.Expand(s.facts.Now, text))
	return q.Text, q.Arrange(args...)
}

// clean cleans all rows, unless another store has done it within the interval. It takes the
// slot of an attempt, so that a store needs no more connections for it.
func (s *Store) clean() error {
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
	case <-s.ctx.Done():
		return context.Cause(s.ctx)
	}
	limited, cancel := context.WithTimeout(s.ctx, janitorLimit)
	defer cancel()
	return s.onPool(limited, s.cleanOn)
}

func (s *Store) cleanOn(conn *sql.Conn) error {
	ctx, cancel := context.WithTimeout(s.ctx, callLimit)
	defer cancel()
	claim, interval := s.bind(janitorClaim, sqldb.JanitorInterval.Milliseconds())
	claimed, err := conn.ExecContext(ctx, claim, interval...)
	if err != nil {
		return err
	}
	if n, err := claimed.RowsAffected(); err != nil || n == 0 {
		return err
	}
	if err := sqldb.ExecAll(ctx, conn, s.server.limitIdle); err != nil {
		return err
	}
	for after, more := firstKey, true; more; {
		if after, more, err = s.cleanPage(conn, after); err != nil {
			return err
		}
	}
	ctx, cancel = context.WithTimeout(s.ctx, callLimit)
	defer cancel()
	return sqldb.ExecAll(ctx, conn, s.server.unlimitIdle)
}

func (s *Store) cleanPage(conn *sql.Conn, after string) (last string, more bool, err error) {
	ctx, cancel := context.WithTimeout(s.ctx, callLimit)
	defer cancel()
	var page sqldb.JanitorPage
	text, args := s.bind(janitorPage, after, janitorRows, sqldb.JanitorAge.Milliseconds())
	query := func() (*sql.Rows, error) { return conn.QueryContext(ctx, text, args...) }
	if err = sqldb.Each(query, page.Add); err == nil && len(page.Old) > 0 {
		err = s.deleteOld(ctx, conn, after, page.Last, page.Highest)
	}
	return page.Last, page.Rows == janitorRows, err
}

// deleteOld deletes the rows between two keys that are old, have no higher token, and are not
// locked. It raises the floor first, because new rows begin at the floor. A transaction that
// inserts a row meanwhile either has ended, or waits and reads the new floor.
func (s *Store) deleteOld(ctx context.Context, conn *sql.Conn, after, last string, highest int64) error {
	tx, err := conn.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // unless it was committed
	text, args := s.bind(raiseFloor, highest)
	if _, err := tx.ExecContext(ctx, text, args...); err != nil {
		return err
	}
	var floor int64 // without the row, new tokens would begin again
	if err := tx.QueryRowContext(ctx, `SELECT token FROM `+s.tables.Bound+` WHERE `+isFloor).Scan(&floor); err != nil {
		return err
	}
	text, args = s.bind(lockOldRows, after, last, sqldb.JanitorAge.Milliseconds(), highest)
	keys, err := column[string](tx.QueryContext(ctx, text, args...))
	for _, key := range keys {
		if text, args = s.bind(`DELETE FROM {bound} WHERE k = ?1`, key); err == nil {
			_, err = tx.ExecContext(ctx, text, args...)
		}
	}
	if err != nil {
		return err
	}
	return tx.Commit()
}

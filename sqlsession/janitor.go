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
	// janitorRows is how many rows are deleted at once. Meanwhile new rows have to wait.
	janitorRows = 100
	// janitorLimit is how long the janitor waits for a connection of the pool.
	janitorLimit = time.Second
)

// cleanQueries are what the janitor sends.
type cleanQueries struct {
	due       sqldb.Query // interval -> whether the last run is as long ago
	start     sqldb.Query // interval; changes nothing if the janitor is not due
	page      sqldb.Query // after key, limit, age -> key, token, whether it may be deleted
	raise     sqldb.Query // token
	floor     sqldb.Query // -> token
	old       sqldb.Query // after key, last key, age, token -> keys, whose rows it locks
	remove    sqldb.Query // key
	limitIdle []string    // makes the server end a janitor whose process stops in the middle
	restore   []string    // undoes limitIdle
}

func newCleanQueries(t *sqldb.Tables, facts *sqldb.Facts) cleanQueries {
	const (
		isFloor = `k = '` + floorKey + `'`
		longAgo = `(used <= {now} - ?1 OR used > {now})` // the clock may have stepped back
	)
	text := func(text string) sqldb.Query { return facts.Bind(t.Expand(facts.Now, text)) }
	return cleanQueries{
		due:    text(`SELECT ` + longAgo + ` FROM {bound} WHERE ` + isFloor),
		start:  text(`UPDATE {bound} SET used = {now} WHERE ` + isFloor + ` AND ` + longAgo),
		page:   text(`SELECT k, token, used <= {now} - ?3 FROM {bound} WHERE k > ?1 AND NOT ` + isFloor + ` ORDER BY k LIMIT ?2`),
		raise:  text(`UPDATE {bound} SET token = GREATEST(token, ?1) WHERE ` + isFloor),
		floor:  text(`SELECT token FROM {bound} WHERE ` + isFloor),
		old:    text(`SELECT k FROM {bound} WHERE k > ?1 AND k <= ?2 AND NOT ` + isFloor + ` AND used <= {now} - ?3 AND token <= ?4 FOR UPDATE SKIP LOCKED`),
		remove: text(`DELETE FROM {bound} WHERE k = ?1`),
	}
}

// janitorDue reports whether no janitor has run for long.
func (s *Store) janitorDue(ctx context.Context, conn *sql.Conn) (due bool, err error) {
	q := &s.server.clean.due
	err = conn.QueryRowContext(ctx, q.Text, q.Arrange(sqldb.JanitorInterval.Milliseconds())...).Scan(&due)
	return due, err
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
	return s.onPool(limited, func(conn *sql.Conn) error { return s.cleanOn(s.ctx, conn) })
}

func (s *Store) cleanOn(ctx context.Context, conn *sql.Conn) error {
	q := &s.server.clean
	started, err := conn.ExecContext(ctx, q.start.Text, q.start.Arrange(sqldb.JanitorInterval.Milliseconds())...)
	if err != nil {
		return err
	}
	if n, err := started.RowsAffected(); err != nil || n == 0 {
		return err
	}
	if err := sqldb.ExecAll(ctx, conn, q.limitIdle...); err != nil {
		return err
	}
	for after, more := "", true; more; {
		if after, more, err = s.cleanPage(ctx, conn, after); err != nil {
			return err
		}
	}
	return sqldb.ExecAll(ctx, conn, q.restore...)
}

func (s *Store) cleanPage(ctx context.Context, conn *sql.Conn, after string) (last string, more bool, err error) {
	q := &s.server.clean.page
	var page sqldb.JanitorPage
	rows, err := conn.QueryContext(ctx, q.Text, q.Arrange(after, janitorRows, sqldb.JanitorAge.Milliseconds())...)
	if err = sqldb.ScanAll(rows, err, page.Add); err == nil && len(page.Old) > 0 {
		err = s.deleteOld(ctx, conn, after, page.Last, page.Highest)
	}
	return page.Last, page.Rows == janitorRows, err
}

// deleteOld deletes the rows between two keys that are old, have no higher token, and are not
// locked. It raises the floor first, so that a name that comes back gets a higher token than
// it ever had: new rows begin at the floor, and a transaction that inserts a row meanwhile
// either has ended, or waits and reads the new floor.
func (s *Store) deleteOld(ctx context.Context, conn *sql.Conn, after, last string, highest int64) error {
	q := &s.server.clean
	tx, err := conn.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // unless it was committed
	if _, err := tx.ExecContext(ctx, q.raise.Text, q.raise.Arrange(highest)...); err != nil {
		return err
	}
	var floor int64 // without the row, new tokens would begin again
	if err := tx.QueryRowContext(ctx, q.floor.Text).Scan(&floor); err != nil {
		return err
	}
	keys, err := column[string](tx.QueryContext(ctx, q.old.Text, q.old.Arrange(after, last, sqldb.JanitorAge.Milliseconds(), highest)...))
	for _, key := range keys {
		if err == nil {
			_, err = tx.ExecContext(ctx, q.remove.Text, key)
		}
	}
	if err != nil {
		return err
	}
	return tx.Commit()
}

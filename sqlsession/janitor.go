package sqlsession

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/dlock-go/dlock/internal/sqldb"
)

// Rows of ForUpdate that nobody has locked for long are deleted, at the same
// intervals as those of [Row]. One row is none: the floor. Its token is the
// highest that was deleted, where new rows begin, and its time that of the last
// janitor.
const (
	floorKey = "floor" // no hash of a name
	// janitorRows is how many rows are deleted at once. Meanwhile new rows have to
	// wait.
	janitorRows = 100
	// janitorLimit is for a pool in which there is no connection left.
	janitorLimit = time.Second
)

// janitorMillis is sqldb.JanitorAge as a text of the server has it.
var janitorMillis = strconv.FormatInt(sqldb.JanitorAge.Milliseconds(), 10)

// janitorQueries are the texts, with parameters that are written as the server does.
type janitorQueries struct {
	due     sqldb.Query // interval -> whether the last sweep is as long ago
	claim   sqldb.Query // interval; changes nothing if it is not
	page    sqldb.Query // after key, limit, age -> key, token, whether it may go
	raise   sqldb.Query // token
	floor   sqldb.Query // -> token
	old     sqldb.Query // after key, last key, age, token -> keys, whose rows it locks
	remove  sqldb.Query // key
	await   sqldb.Query // waits until nobody cleans
	guarded []string    // ends a sweep whose process is stopped in the middle
	restore []string    // undoes guarded
}

// newJanitorQueries makes the texts that differ in nothing but how a parameter is
// written, what the time is, and how to lock a row that others may read.
func newJanitorQueries(t *sqldb.Tables, facts *sqldb.Facts, shared string) janitorQueries {
	const (
		isFloor = `k = '` + floorKey + `'`
		longAgo = `(used <= {now} - ?1 OR used > {now})` // the clock may have stepped back
	)
	text := func(text string) sqldb.Query { return facts.Bind(t.Expand(facts.Now, text)) }
	return janitorQueries{
		due:    text(`SELECT ` + longAgo + ` FROM {bound} WHERE ` + isFloor),
		claim:  text(`UPDATE {bound} SET used = {now} WHERE ` + isFloor + ` AND ` + longAgo),
		page:   text(`SELECT k, token, used <= {now} - ?3 FROM {bound} WHERE k > ?1 AND NOT ` + isFloor + ` ORDER BY k LIMIT ?2`),
		raise:  text(`UPDATE {bound} SET token = GREATEST(token, ?1) WHERE ` + isFloor),
		floor:  text(`SELECT token FROM {bound} WHERE ` + isFloor),
		old:    text(`SELECT k FROM {bound} WHERE k > ?1 AND k <= ?2 AND NOT ` + isFloor + ` AND used <= {now} - ?3 AND token <= ?4 FOR UPDATE SKIP LOCKED`),
		remove: text(`DELETE FROM {bound} WHERE k = ?1`),
		await:  text(`SELECT token FROM {bound} WHERE ` + isFloor + ` ` + shared),
	}
}

// runJanitor cleans now and then until the store is closed. What fails is tried
// again at the next interval.
func (s *Store) runJanitor() {
	ticker := time.NewTicker(sqldb.JanitorInterval)
	defer ticker.Stop()
	for due := s.cleans; ; due = true {
		if due {
			_ = s.clean(s.ctx)
		}
		select {
		case <-s.ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// janitorDue says whether nobody has swept for long.
func (s *Store) janitorDue(ctx context.Context, conn *sql.Conn) (due bool, err error) {
	q := &s.server.janitor.due
	err = conn.QueryRowContext(ctx, q.Text, q.Arrange(sqldb.JanitorInterval.Milliseconds())...).Scan(&due)
	return due, err
}

// clean cleans all rows, unless another store has done it within the
// interval. It has the seat of an attempt, so that a store needs no more
// connections for it.
func (s *Store) clean(ctx context.Context) error {
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	limited, cancel := context.WithTimeout(ctx, janitorLimit)
	conn, err := s.connection(limited)
	cancel()
	if err != nil {
		return err
	}
	c := newConn(conn)
	if err := s.cleanOn(ctx, conn); err != nil {
		c.discard()
		return err
	}
	c.giveBack()
	return nil
}

func (s *Store) cleanOn(ctx context.Context, conn *sql.Conn) error {
	janitor := &s.server.janitor
	if due, err := s.janitorDue(ctx, conn); err != nil || !due {
		return err
	}
	claimed, err := conn.ExecContext(ctx, janitor.claim.Text, janitor.claim.Arrange(sqldb.JanitorInterval.Milliseconds())...)
	if err != nil {
		return err
	}
	if n, err := claimed.RowsAffected(); err != nil || n == 0 {
		return err
	}
	if err := execAll(ctx, conn, janitor.guarded...); err != nil {
		return err
	}
	for after, more := "", true; more; {
		if after, more, err = s.cleanPage(ctx, conn, after); err != nil {
			return err
		}
	}
	return execAll(ctx, conn, janitor.restore...)
}

// cleanPage cleans the rows that begin after that key. It looks first, so that
// rows of which none is old keep nobody waiting.
func (s *Store) cleanPage(ctx context.Context, conn *sql.Conn, after string) (last string, more bool, err error) {
	q := &s.server.janitor.page
	rows, err := conn.QueryContext(ctx, q.Text, q.Arrange(after, janitorRows, sqldb.JanitorAge.Milliseconds())...)
	if err != nil {
		return "", false, err
	}
	defer rows.Close()
	seen, highest := 0, int64(-1)
	for rows.Next() {
		var token int64
		var old bool
		if err := rows.Scan(&last, &token, &old); err != nil {
			return "", false, err
		}
		seen++
		if old {
			highest = max(highest, token)
		}
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil {
		return "", false, err
	}
	if highest >= 0 {
		err = s.deleteOld(ctx, conn, after, last, highest)
	}
	return last, seen == janitorRows, err
}

// deleteOld deletes the rows between two keys that are old, have no higher token,
// and are locked by nobody. It raises the floor first, and so makes sure that a
// name that comes back gets a higher token than it ever had: new rows begin at
// the floor, and whoever inserts one meanwhile either was before, or waits and
// sees the new floor.
func (s *Store) deleteOld(ctx context.Context, conn *sql.Conn, after, last string, highest int64) error {
	janitor := &s.server.janitor
	tx, err := conn.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // unless it was committed
	if _, err := tx.ExecContext(ctx, janitor.raise.Text, janitor.raise.Arrange(highest)...); err != nil {
		return err
	}
	var raised int64
	if err := tx.QueryRowContext(ctx, janitor.floor.Text).Scan(&raised); err != nil {
		return err
	}
	if raised < highest {
		return fmt.Errorf("the floor is %d after it was raised to %d", raised, highest)
	}
	keys, err := texts(tx.QueryContext(ctx, janitor.old.Text, janitor.old.Arrange(after, last, sqldb.JanitorAge.Milliseconds(), highest)...))
	if err != nil {
		return err
	}
	remove, err := tx.PrepareContext(ctx, janitor.remove.Text)
	if err != nil {
		return err
	}
	defer func() { _ = remove.Close() }() // it ends with the transaction
	for _, key := range keys {
		if _, err := remove.ExecContext(ctx, key); err != nil {
			return err
		}
	}
	return tx.Commit()
}

// texts reads an answer of one column.
func texts(rows *sql.Rows, err error) (all []string, _ error) {
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var text string
		if err := rows.Scan(&text); err != nil {
			return nil, err
		}
		all = append(all, text)
	}
	return all, rows.Err()
}

// awaitJanitor returns when nobody cleans.
func (s *Store) awaitJanitor(ctx context.Context, c *conn) error {
	var floor int64
	err := c.raw.QueryRowContext(ctx, s.server.janitor.await.Text).Scan(&floor)
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	return err
}

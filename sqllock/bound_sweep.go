package sqllock

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"time"
)

// Rows of ForUpdate that nobody has locked for long are deleted, at the same
// intervals as those of [Row]. One row is none: the floor. Its token is the
// highest that was deleted, where new rows begin, and its time that of the last
// sweep.
const (
	floorKey = "floor" // no hash of a name
	// sweepBatch is how many rows are deleted at once. Meanwhile new rows have to
	// wait.
	sweepBatch = 100
	// sweepLimit is for a pool in which there is no connection left.
	sweepLimit = time.Second
)

// sweepMillis is sweepAge as a text of the server has it.
var sweepMillis = strconv.FormatInt(sweepAge.Milliseconds(), 10)

// boundSweep are the texts, with parameters that are written as the server does.
type boundSweep struct {
	due     query    // interval -> whether the last sweep is as long ago
	claim   query    // interval; changes nothing if it is not
	page    query    // after key, limit, age -> key, token, whether it may go
	raise   query    // token
	floor   query    // -> token
	old     query    // after key, last key, age, token -> keys, whose rows it locks
	remove  query    // key
	await   query    // waits until nobody sweeps
	guarded []string // ends a sweep whose process is stopped in the middle
	restore []string // undoes guarded
}

// newBoundSweep makes the texts that differ in nothing but how a parameter is
// written, what the time is, and how to lock a row that others may read.
func newBoundSweep(t tables, now, shared string, bind func(string) query) boundSweep {
	const (
		isFloor = `k = '` + floorKey + `'`
		longAgo = `(used <= {now} - ?1 OR used > {now})` // the clock may have stepped back
	)
	text := func(text string) query { return bind(t.expand(now, text)) }
	return boundSweep{
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

// sweepBound sweeps now and then until the store is closed. What fails is tried
// again at the next interval.
func (s *BoundStore) sweepBound() {
	ticker := time.NewTicker(sweepInterval)
	defer ticker.Stop()
	for due := s.sweeps; ; due = true {
		if due {
			_ = s.sweepOnce(s.ctx)
		}
		select {
		case <-s.ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// sweepDue says whether nobody has swept for long.
func (s *BoundStore) sweepDue(ctx context.Context, conn *sql.Conn) (due bool, err error) {
	q := &s.server.sweep.due
	err = conn.QueryRowContext(ctx, q.text, q.arrange([]any{sweepInterval.Milliseconds()})...).Scan(&due)
	return due, err
}

// sweepOnce sweeps all rows, unless another store has done it within the
// interval. It has the seat of an attempt, so that a store needs no more
// connections for it.
func (s *BoundStore) sweepOnce(ctx context.Context) error {
	select {
	case s.seats <- struct{}{}:
		defer func() { <-s.seats }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	limited, cancel := context.WithTimeout(ctx, sweepLimit)
	conn, err := s.connection(limited)
	cancel()
	if err != nil {
		return err
	}
	l := newLink(conn)
	if err := s.sweepOn(ctx, conn); err != nil {
		l.discard()
		return err
	}
	l.giveBack()
	return nil
}

func (s *BoundStore) sweepOn(ctx context.Context, conn *sql.Conn) error {
	sweep := &s.server.sweep
	if due, err := s.sweepDue(ctx, conn); err != nil || !due {
		return err
	}
	claimed, err := conn.ExecContext(ctx, sweep.claim.text, sweep.claim.arrange([]any{sweepInterval.Milliseconds()})...)
	if err != nil {
		return err
	}
	if n, err := claimed.RowsAffected(); err != nil || n == 0 {
		return err
	}
	if err := execAll(ctx, conn, sweep.guarded); err != nil {
		return err
	}
	for after, more := "", true; more; {
		if after, more, err = s.sweepFrom(ctx, conn, after); err != nil {
			return err
		}
	}
	return execAll(ctx, conn, sweep.restore)
}

// sweepFrom sweeps the rows that begin after that key. It looks first, so that
// rows of which none is old keep nobody waiting.
func (s *BoundStore) sweepFrom(ctx context.Context, conn *sql.Conn, after string) (last string, more bool, err error) {
	q := &s.server.sweep.page
	rows, err := conn.QueryContext(ctx, q.text, q.arrange([]any{after, sweepBatch, sweepAge.Milliseconds()})...)
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
	return last, seen == sweepBatch, err
}

// deleteOld deletes the rows between two keys that are old, have no higher token,
// and are locked by nobody. It raises the floor first, and so makes sure that a
// name that comes back gets a higher token than it ever had: new rows begin at
// the floor, and whoever inserts one meanwhile either was before, or waits and
// sees the new floor.
func (s *BoundStore) deleteOld(ctx context.Context, conn *sql.Conn, after, last string, highest int64) error {
	sweep := &s.server.sweep
	tx, err := conn.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // unless it was committed
	if _, err := tx.ExecContext(ctx, sweep.raise.text, sweep.raise.arrange([]any{highest})...); err != nil {
		return err
	}
	var raised int64
	if err := tx.QueryRowContext(ctx, sweep.floor.text).Scan(&raised); err != nil {
		return err
	}
	if raised < highest {
		return fmt.Errorf("the floor is %d after it was raised to %d", raised, highest)
	}
	keys, err := texts(tx.QueryContext(ctx, sweep.old.text, sweep.old.arrange([]any{after, last, sweepAge.Milliseconds(), highest})...))
	if err != nil {
		return err
	}
	remove, err := tx.PrepareContext(ctx, sweep.remove.text)
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

// awaitSweep returns when nobody sweeps.
func (s *BoundStore) awaitSweep(ctx context.Context, l *link) error {
	var floor int64
	err := l.conn.QueryRowContext(ctx, s.server.sweep.await.text).Scan(&floor)
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	return err
}

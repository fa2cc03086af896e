package subject

import (
	"context"
	"database/sql"
	"errors"
	"time"

	_ "github.com/go-sql-driver/mysql" // the driver "mysql"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
	_ "modernc.org/sqlite"             // the driver "sqlite"
)

var sqlSubjects = []Subject{
	{"postgres/row-forever", Wrong, "a row with a unique index, inserted to lock and deleted to unlock: no expiry", openRow(rowForever)},
	{"postgres/for-update", Wrong, "a transaction that holds SELECT ... FOR UPDATE, and nothing ends it when its client is gone", openForUpdate},
	{"postgres/row-expires", Wrong, "a row with an expiry by the database's clock; no token", openRow(rowServerClock)},
	{"postgres/row-client-clock", Wrong, "a row whose expiry is a time of the client's clock", openRow(rowClientClock)},
}

// rowKind is how a row says that it is held.
type rowKind int

const (
	rowForever rowKind = iota
	rowClientClock
	rowServerClock
)

func openRow(kind rowKind) func(ctx context.Context, c Config) (Locker, error) {
	return func(ctx context.Context, c Config) (Locker, error) {
		db, err := sql.Open("pgx", c.URL)
		if err != nil {
			return nil, err
		}
		_, err = db.ExecContext(ctx, "CREATE TABLE IF NOT EXISTS article_lock (name text PRIMARY KEY, expires timestamptz)")
		if err != nil {
			_, err = db.ExecContext(ctx, "SELECT 1 FROM article_lock LIMIT 1") // another process created it at the same time
		}
		return &rowLocker{db, c, kind}, err
	}
}

type rowLocker struct {
	db     *sql.DB
	config Config
	kind   rowKind
}

func (l *rowLocker) Lock(ctx context.Context) (Held, error) {
	err := pollLock(ctx, func() (bool, error) {
		var result sql.Result
		var err error
		switch l.kind {
		case rowForever:
			result, err = l.db.ExecContext(ctx, "INSERT INTO article_lock (name) VALUES ($1) ON CONFLICT DO NOTHING", l.config.Name)
		case rowServerClock:
			result, err = l.db.ExecContext(ctx, `INSERT INTO article_lock (name, expires) VALUES ($1, clock_timestamp() + $2 * interval '1 ms')
				ON CONFLICT (name) DO UPDATE SET expires = excluded.expires WHERE article_lock.expires < clock_timestamp()`,
				l.config.Name, l.config.TTL.Milliseconds())
		case rowClientClock:
			now := l.config.now()
			result, err = l.db.ExecContext(ctx, `INSERT INTO article_lock (name, expires) VALUES ($1, $2)
				ON CONFLICT (name) DO UPDATE SET expires = $2 WHERE article_lock.expires < $3`,
				l.config.Name, now.Add(l.config.TTL), now)
		}
		if err != nil {
			return false, err
		}
		n, err := result.RowsAffected()
		return n == 1, err
	})
	if err != nil {
		return nil, err
	}
	return rowHeld{l, time.Now().Add(l.config.TTL)}, nil
}

type rowHeld struct {
	*rowLocker
	until time.Time // by this process's own clock, as its lock says
}

func (h rowHeld) Believes() bool { return h.kind == rowForever || time.Now().Before(h.until) }
func (h rowHeld) Token() uint64  { return 0 }

func (h rowHeld) Unlock(ctx context.Context) error {
	_, err := h.db.ExecContext(ctx, "DELETE FROM article_lock WHERE name = $1", h.config.Name)
	return err
}

func openForUpdate(ctx context.Context, c Config) (Locker, error) {
	opened, err := openRow(rowForever)(ctx, c)
	if err != nil {
		return nil, err
	}
	l := opened.(*rowLocker)
	_, err = l.db.ExecContext(ctx, "INSERT INTO article_lock (name) VALUES ($1) ON CONFLICT DO NOTHING", c.Name)
	return &forUpdateLocker{l}, err
}

// forUpdateLocker holds a transaction open.
type forUpdateLocker struct{ *rowLocker }

func (l *forUpdateLocker) Lock(ctx context.Context) (Held, error) {
	tx, err := l.db.BeginTx(context.Background(), nil) // not the context of the call, which would end the transaction
	if err != nil {
		return nil, err
	}
	if _, err := tx.ExecContext(ctx, "SELECT 1 FROM article_lock WHERE name = $1 FOR UPDATE", l.config.Name); err != nil {
		return nil, errors.Join(err, tx.Rollback())
	}
	return forUpdateHeld{tx}, nil
}

type forUpdateHeld struct{ *sql.Tx }

func (h forUpdateHeld) Believes() bool               { return true }
func (h forUpdateHeld) Token() uint64                { return 0 }
func (h forUpdateHeld) Unlock(context.Context) error { return h.Commit() }

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

const (
	insertRow       = "INSERT INTO article_lock (name) VALUES ($1) ON CONFLICT DO NOTHING"
	insertExpiring  = "INSERT INTO article_lock (name, expires) VALUES ($1, clock_timestamp() + $2 * interval '1 ms') "
	insertUntil     = "INSERT INTO article_lock (name, expires) VALUES ($1, $2) "
	replaceExpired  = "ON CONFLICT (name) DO UPDATE SET expires = excluded.expires WHERE article_lock.expires < "
	createArticle   = "CREATE TABLE IF NOT EXISTS article_lock (name text PRIMARY KEY, expires timestamptz)"
	deleteRow       = "DELETE FROM article_lock WHERE name = $1"
	selectForUpdate = "SELECT 1 FROM article_lock WHERE name = $1 FOR UPDATE"
)

func openTable(ctx context.Context, c Config) (*sql.DB, error) {
	db, err := sql.Open("pgx", c.URL)
	if err != nil {
		return nil, err
	}
	if _, err = db.ExecContext(ctx, createArticle); err != nil {
		_, err = db.ExecContext(ctx, "SELECT 1 FROM article_lock LIMIT 1") // another process created it at the same time
	}
	return db, err
}

func openRow(kind rowKind) func(ctx context.Context, c Config) (Locker, error) {
	return func(ctx context.Context, c Config) (Locker, error) {
		db, err := openTable(ctx, c)
		unlock := func(ctx context.Context) error {
			_, err := db.ExecContext(ctx, deleteRow, c.Name)
			return err
		}
		return lockFunc(func(ctx context.Context) (Held, error) {
			err := pollLock(ctx, func() (bool, error) {
				var result sql.Result
				var err error
				switch now := c.now(); kind {
				case rowForever:
					result, err = db.ExecContext(ctx, insertRow, c.Name)
				case rowServerClock:
					result, err = db.ExecContext(ctx, insertExpiring+replaceExpired+"clock_timestamp()", c.Name, c.TTL.Milliseconds())
				case rowClientClock:
					result, err = db.ExecContext(ctx, insertUntil+replaceExpired+"$3", c.Name, now.Add(c.TTL), now)
				}
				if err != nil {
					return false, err
				}
				n, err := result.RowsAffected()
				return n == 1, err
			})
			until := time.Now().Add(c.TTL) // by this process's own clock, as its lock says
			return held{unlock: unlock, believes: func() bool { return kind == rowForever || time.Now().Before(until) }}, err
		}), err
	}
}

// openForUpdate holds a transaction open.
func openForUpdate(ctx context.Context, c Config) (Locker, error) {
	db, err := openTable(ctx, c)
	if err != nil {
		return nil, err
	}
	_, err = db.ExecContext(ctx, insertRow, c.Name)
	return lockFunc(func(ctx context.Context) (Held, error) {
		tx, err := db.BeginTx(context.Background(), nil) // not the context of the call, which would end the transaction
		if err != nil {
			return nil, err
		}
		if _, err := tx.ExecContext(ctx, selectForUpdate, c.Name); err != nil {
			return nil, errors.Join(err, tx.Rollback())
		}
		return held{unlock: func(context.Context) error { return tx.Commit() }}, nil
	}), err
}

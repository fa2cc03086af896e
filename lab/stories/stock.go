package stories

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"github.com/dlock-go/dlock/fence"
	"github.com/dlock-go/dlock/internal/sqldb"
	"github.com/dlock-go/dlock/internal/sqldb/sqlurl"
	"github.com/dlock-go/dlock/lab/stage"
)

const (
	productID   = 1                // the only product
	createLimit = 10 * time.Second // for the database to create the table

	// stockSettings make a writer wait for other writers, and not for the disk.
	stockSettings = "_pragma=busy_timeout(20000)&_pragma=journal_mode(WAL)&_pragma=synchronous(OFF)&_txlock=immediate"
)

// stockTable is the table of products, in a database that all shops share.
type stockTable struct {
	db        *sql.DB
	table     string
	guard     *fence.Guard
	selectSQL string
	reduceSQL string
}

// newTable returns a table name that no other program uses.
func newTable() string { return fmt.Sprintf("dlock_lab_%012x", rand.Uint64()>>16) }

func openStock(db *sql.DB, dialect fence.Dialect, table string) (*stockTable, error) {
	guard, err := fence.New(fence.Row{Dialect: dialect, Table: table, Key: "id"})
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return &stockTable{
		db:        db,
		table:     table,
		guard:     guard,
		selectSQL: fmt.Sprintf("SELECT stock FROM %s WHERE id = %d", table, productID),
		reduceSQL: fmt.Sprintf("UPDATE %s SET stock = stock - 1 WHERE id = %d", table, productID),
	}, nil
}

// create creates the table with one product. It fails if the table exists, because the experiment
// drops it. The end of ctx does not interrupt it, so that the experiment knows what to drop.
func (s *stockTable) create(ctx context.Context, number int) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), createLimit)
	defer cancel()
	err := s.exec(ctx, "create the table "+s.table, "CREATE TABLE "+s.table+
		" (id BIGINT PRIMARY KEY, product_name VARCHAR(100) NOT NULL, stock BIGINT NOT NULL, fence BIGINT NOT NULL DEFAULT 0)")
	if err != nil {
		return err
	}
	insert := fmt.Sprintf("INSERT INTO %s (id, product_name, stock) VALUES (%d, 'ECS:1C2048M', %d)", s.table, productID, number)
	if err := s.exec(ctx, "fill the table "+s.table, insert); err != nil {
		return errors.Join(err, s.drop(context.WithoutCancel(ctx)))
	}
	return nil
}

func (s *stockTable) drop(ctx context.Context) error {
	return s.exec(ctx, "drop the table "+s.table, "DROP TABLE "+s.table)
}

func (s *stockTable) exec(ctx context.Context, what, statement string) error {
	if _, err := s.db.ExecContext(ctx, statement); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

func (s *stockTable) read(ctx context.Context) (left int, err error) {
	if err := s.db.QueryRowContext(ctx, s.selectSQL).Scan(&left); err != nil {
		return 0, fmt.Errorf("read the stock: %w", err)
	}
	return left, nil
}

// row is the row of the product as the holder of a token sees it. Without a token it has no fence.
type row struct {
	*stockTable
	token uint64
}

// read writes the token into a fenced row, so that a former holder cannot write between this
// read and the write that follows. No write follows if the stock is empty.
func (r row) read(ctx context.Context) (left int, err error) {
	if left, err = r.stockTable.read(ctx); err != nil || left <= 0 || r.token == 0 {
		return left, err
	}
	err = r.guard.Do(ctx, r.db, productID, r.token, func(tx *sql.Tx) error {
		return tx.QueryRowContext(ctx, r.selectSQL).Scan(&left)
	})
	return left, err
}

// take reduces the stock. It does not check it: a statement cannot check money, a seat or a mail either.
func (r row) take(ctx context.Context) error {
	if r.token == 0 {
		return r.exec(ctx, "reduce the stock", r.reduceSQL)
	}
	return r.guard.Do(ctx, r.db, productID, r.token, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, r.reduceSQL)
		return err
	})
}

// place is where the stock is. It may contain a password.
type place struct {
	Database string // the URL of --db; empty: the file
	File     string
	Table    string
}

// open opens the table, which exists or will be created, if the database answers.
func (p place) open(ctx context.Context, connections int) (*stockTable, error) {
	if p.Database == "" {
		path := "/" + strings.TrimPrefix(filepath.ToSlash(p.File), "/") // C:/
		db, err := sql.Open("sqlite", (&url.URL{Scheme: "file", Path: path, RawQuery: stockSettings}).String())
		if err != nil {
			return nil, err
		}
		db.SetMaxOpenConns(connections)
		db.SetMaxIdleConns(connections)
		return openStock(db, fence.SQLite, p.Table)
	}
	u, err := sqlurl.Parse(p.Database)
	switch {
	case err != nil:
		return nil, fmt.Errorf("--db: %w", err)
	case u.Dialect == sqldb.SQLite:
		return nil, errors.New("--db takes mysql://, mariadb:// or postgres://, each with user:password@host:port/database")
	case u.Scheme != "" || u.TablePrefix != "":
		return nil, errors.New("--db: scheme and table_prefix are for a store of locks, not for the database of the shop")
	}
	dialect := fence.MySQL
	if u.Dialect == sqldb.Postgres {
		dialect = fence.PostgreSQL
	}
	db, err := u.Open(ctx, connections)
	if err != nil {
		return nil, fmt.Errorf("--db: %w", err)
	}
	return openStock(db, dialect, p.Table)
}

// newStock creates the table of the shops with a number in stock, until the end of the experiment.
func newStock(s *stage.Stage, number int) (place, *stockTable) {
	p := place{Database: s.Options.Database, Table: newTable()}
	if p.Database == "" {
		p.File = filepath.Join(s.Folder(), "stock.db")
	}
	stock, err := p.open(s.Context(), 1)
	s.Must(err)
	s.Cleanup(func(context.Context) error { return stock.db.Close() })
	s.Must(stock.create(s.Context(), number))
	s.Cleanup(stock.drop)
	s.Stock("in stock", number)
	return p, stock
}

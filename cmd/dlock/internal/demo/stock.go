package demo

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

	"github.com/dlock-go/dlock/cmd/dlock/internal/stores"
	"github.com/dlock-go/dlock/fence"
	"github.com/dlock-go/dlock/sqllock"
)

const (
	productID     = 1                // the only product
	createLimit   = 10 * time.Second // for the database to create the table
	databaseLimit = 15 * time.Second // for the database to answer, or to drop the table

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
func newTable() string { return fmt.Sprintf("dlock_demo_%012x", rand.Uint64()>>16) }

// openStock returns a table that exists or will be created.
func openStock(db *database, table string) (*stockTable, error) {
	guard, err := fence.New(fence.Row{Dialect: db.dialect, Table: table, Key: "id"})
	if err != nil {
		return nil, err
	}
	return &stockTable{
		db:        db.DB,
		table:     table,
		guard:     guard,
		selectSQL: fmt.Sprintf("SELECT stock FROM %s WHERE id = %d", table, productID),
		reduceSQL: fmt.Sprintf("UPDATE %s SET stock = stock - 1 WHERE id = %d", table, productID),
	}, nil
}

// create creates the table with one product. It fails if the table exists, because the demo
// drops it. The end of ctx does not interrupt it, so that the demo knows what to drop.
func (s *stockTable) create(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), createLimit)
	defer cancel()
	err := s.exec(ctx, "create the table "+s.table, "CREATE TABLE "+s.table+
		" (id BIGINT PRIMARY KEY, product_name VARCHAR(100) NOT NULL, stock BIGINT NOT NULL, fence BIGINT NOT NULL DEFAULT 0)")
	if err != nil {
		return err
	}
	insert := fmt.Sprintf("INSERT INTO %s (id, product_name, stock) VALUES (%d, 'ECS:1C2048M', 0)", s.table, productID)
	if err := s.exec(ctx, "fill the table "+s.table, insert); err != nil {
		return errors.Join(err, s.drop(context.WithoutCancel(ctx)))
	}
	return nil
}

func (s *stockTable) drop(ctx context.Context) error {
	return s.exec(ctx, "drop the table "+s.table, "DROP TABLE "+s.table)
}

func (s *stockTable) restock(ctx context.Context, number int) error {
	return s.exec(ctx, "fill the stock", fmt.Sprintf("UPDATE %s SET stock = %d WHERE id = %d", s.table, number, productID))
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

// row is the row of the product as the holder of a token sees it.
type row struct {
	*stockTable
	token  uint64
	fenced bool // it refuses a former holder
}

// read writes the token into a fenced row, so that a former holder cannot write between this
// read and the write that follows. No write follows if the stock is empty.
func (r row) read(ctx context.Context) (left int, err error) {
	if left, err = r.stockTable.read(ctx); err != nil || left <= 0 || !r.fenced {
		return left, err
	}
	err = r.guard.Do(ctx, r.db, productID, r.token, func(tx *sql.Tx) error {
		return tx.QueryRowContext(ctx, r.selectSQL).Scan(&left)
	})
	return left, err
}

// take reduces the stock. It does not check it: a statement cannot check money, a seat or a mail either.
func (r row) take(ctx context.Context) error {
	if !r.fenced {
		return r.exec(ctx, "reduce the stock", r.reduceSQL)
	}
	return r.guard.Do(ctx, r.db, productID, r.token, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, r.reduceSQL)
		return err
	})
}

type database struct {
	*sql.DB
	dialect fence.Dialect
	name    string            // for people
	server  *stores.SQLServer // nil: a file
}

func (d *database) cannotUse(err error) error {
	if d.server == nil {
		return stores.CannotUse(d.name, "", err)
	}
	return d.server.CannotUse(err)
}

// openDatabase opens the database of --db, or an SQLite file in folder, if it answers.
func openDatabase(ctx context.Context, raw, folder string, connections int) (*database, error) {
	d := &database{dialect: fence.SQLite, name: "an SQLite file"}
	path := "/" + strings.TrimPrefix(filepath.ToSlash(filepath.Join(folder, "stock.db")), "/") // C:/
	name, dsn := "sqlite", (&url.URL{Scheme: "file", Path: path, RawQuery: stockSettings}).String()
	var err error
	if d.server, err = databaseServer(raw); err != nil {
		return nil, err
	}
	if d.server != nil {
		d.name, d.dialect, name, dsn = d.server.Shown(), fence.MySQL, d.server.Driver, d.server.DSN
		if d.server.Dialect == sqllock.Postgres {
			d.dialect = fence.PostgreSQL
		}
	}
	if d.DB, err = sql.Open(name, dsn); err != nil {
		return nil, usagef("--db: the parameters: %w", err)
	}
	d.SetMaxOpenConns(connections)
	d.SetMaxIdleConns(connections)
	ctx, cancel := context.WithTimeoutCause(ctx, databaseLimit, errors.New("it did not answer in time"))
	defer cancel()
	if err := d.PingContext(ctx); err != nil {
		_ = d.Close()
		return nil, d.cannotUse(err)
	}
	return d, nil
}

// databaseServer parses a URL of --db. It returns nil for an empty one.
func databaseServer(raw string) (*stores.SQLServer, error) {
	url := stores.Split(raw)
	if raw == "" {
		return nil, stores.CheckScheme(url)
	}
	switch url.Scheme {
	case "mysql", "mariadb", "postgres", "postgresql":
	default:
		return nil, usagef("--db takes mysql://, mariadb:// or postgres://, each with user:password@host:port/database")
	}
	err := stores.CheckScheme(url)
	var server *stores.SQLServer
	if err == nil {
		server, err = stores.ParseSQL(url)
	}
	switch {
	case err != nil:
		return nil, fmt.Errorf("--db: %w", err)
	case server.Scheme != "" || server.TablePrefix != "":
		return nil, usagef("--db: scheme and table_prefix are for a store of locks, not for the database of the shop")
	}
	return server, nil
}

func (s *Stage) checkDatabase() error {
	_, err := databaseServer(s.Database)
	return err
}

// withStock creates the table of the shops, calls use, and drops the table.
func (s *Stage) withStock(ctx context.Context, use func(ctx context.Context, stock *stockTable) error) error {
	db, err := openDatabase(ctx, s.Database, s.Folder, 1)
	if err != nil {
		return err
	}
	defer func() { _ = db.Close() }()
	stock, err := openStock(db, newTable())
	if err != nil {
		return err
	}
	if err := stock.create(ctx); err != nil {
		return db.cannotUse(err)
	}
	defer func() { // also after a signal
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), databaseLimit)
		defer cancel()
		if err := stock.drop(ctx); err != nil {
			fmt.Fprintf(s.Stderr, "dlock: remove the table by hand: %v\n", err)
		}
	}()
	s.database = db.name
	return use(ctx, stock)
}

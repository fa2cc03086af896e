package demo

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/dlock-go/dlock/fence"
)

// productID is the only product.
const productID = 1

// row is the row of the product.
type row interface {
	// read returns what is in stock.
	read(ctx context.Context) (int, error)
	// take reduces the stock by one without a check.
	take(ctx context.Context) error
}

// Stock is the table of products, in a database that all shops share. Nothing keeps other
// callers out between a read and a write.
type Stock struct {
	db         *sql.DB
	table      string
	guard      *fence.Guard
	selectSQL  string // id
	reduceSQL  string // id
	restockSQL string // stock, id
}

// NewTable returns a table name that no other program uses.
func NewTable() string {
	random := make([]byte, 6)
	_, _ = rand.Read(random) // never fails
	return fmt.Sprintf("dlock_demo_%x", random)
}

// OpenStock returns a table that exists or will be created.
func OpenStock(db *sql.DB, dialect fence.Dialect, table string) (*Stock, error) {
	guard, err := fence.New(fence.Row{Dialect: dialect, Table: table, Key: "id"})
	if err != nil {
		return nil, err
	}
	first, second := "?", "?"
	if dialect == fence.PostgreSQL {
		first, second = "$1", "$2"
	}
	return &Stock{
		db:         db,
		table:      table,
		guard:      guard,
		selectSQL:  "SELECT stock FROM " + table + " WHERE id = " + first,
		reduceSQL:  "UPDATE " + table + " SET stock = stock - 1 WHERE id = " + first,
		restockSQL: "UPDATE " + table + " SET stock = " + first + " WHERE id = " + second,
	}, nil
}

// createLimit is how long a database may take to create a table.
const createLimit = 10 * time.Second

// Create creates the table with one product. It fails if the table exists, so that a table
// of the user is never used or dropped. The end of ctx does not interrupt it, because then
// it would be unknown whether there is a table to drop.
func (s *Stock) Create(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), createLimit)
	defer cancel()
	if _, err := s.db.ExecContext(ctx, "CREATE TABLE "+s.table+
		" (id BIGINT PRIMARY KEY, product_name VARCHAR(100) NOT NULL, stock BIGINT NOT NULL, fence BIGINT NOT NULL DEFAULT 0)"); err != nil {
		return fmt.Errorf("create the table %s: %w", s.table, err)
	}
	if _, err := s.db.ExecContext(ctx, fmt.Sprintf("INSERT INTO %s (id, product_name, stock) VALUES (%d, 'ECS:1C2048M', 0)", s.table, productID)); err != nil {
		return errors.Join(fmt.Errorf("fill the table %s: %w", s.table, err), s.Drop(context.WithoutCancel(ctx)))
	}
	return nil
}

// Drop removes the table.
func (s *Stock) Drop(ctx context.Context) error {
	if _, err := s.db.ExecContext(ctx, "DROP TABLE "+s.table); err != nil {
		return fmt.Errorf("drop the table %s: %w", s.table, err)
	}
	return nil
}

// Restock sets what is in stock.
func (s *Stock) Restock(ctx context.Context, stock int) error {
	if _, err := s.db.ExecContext(ctx, s.restockSQL, stock, productID); err != nil {
		return fmt.Errorf("fill the stock: %w", err)
	}
	return nil
}

// Left returns what is in stock.
func (s *Stock) Left(ctx context.Context) (int, error) { return s.read(ctx) }

func (s *Stock) read(ctx context.Context) (stock int, err error) {
	if err := s.db.QueryRowContext(ctx, s.selectSQL, productID).Scan(&stock); err != nil {
		return 0, fmt.Errorf("read the stock: %w", err)
	}
	return stock, nil
}

// take does not check the stock, because a statement cannot check more than a number in the
// same row: money, a seat, a mail.
func (s *Stock) take(ctx context.Context) error {
	if _, err := s.db.ExecContext(ctx, s.reduceSQL, productID); err != nil {
		return fmt.Errorf("reduce the stock: %w", err)
	}
	return nil
}

// fencedRow is the row for the holder of a token. It refuses a former holder that does not
// know that it has lost the lock.
type fencedRow struct {
	stock *Stock
	token uint64
}

// read writes its token into the row, so that a former holder cannot write between this
// read and the write that follows. No write follows if the stock is empty.
func (f *fencedRow) read(ctx context.Context) (stock int, err error) {
	if stock, err = f.stock.read(ctx); err != nil || stock <= 0 {
		return stock, err
	}
	err = f.do(ctx, func(tx *sql.Tx) error {
		return tx.QueryRowContext(ctx, f.stock.selectSQL, productID).Scan(&stock)
	})
	return stock, err
}

func (f *fencedRow) take(ctx context.Context) error {
	return f.do(ctx, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, f.stock.reduceSQL, productID)
		return err
	})
}

func (f *fencedRow) do(ctx context.Context, use func(*sql.Tx) error) error {
	return f.stock.guard.Do(ctx, f.stock.db, productID, f.token, use)
}

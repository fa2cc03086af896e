package oversell

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/dlock-go/dlock/fence"
)

// productID is the only product there is.
const productID = 1

// row is the product's row, as somebody reads and writes it.
type row interface {
	// read returns what is in stock.
	read(ctx context.Context) (int, error)
	// take takes one out of the stock, whatever is in it.
	take(ctx context.Context) error
}

// Stock is the table of products, in a database that all shops share. Read and
// write know nothing of each other: whoever does both has to keep others out.
type Stock struct {
	db         *sql.DB
	table      string
	guard      *fence.Guard
	selectSQL  string // id
	reduceSQL  string // id
	restockSQL string // stock, id
}

// NewTable is the name of a table that nobody has.
func NewTable() string {
	random := make([]byte, 6)
	_, _ = rand.Read(random) // never fails
	return fmt.Sprintf("dlock_demo_%x", random)
}

// OpenStock opens the table, which is there or will be created.
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

// Create creates the table with one product. It fails if there is such a table, so
// that nobody's is ever used or dropped. Nothing interrupts it, because then nobody
// would know whether there is a table to drop.
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

// Left is what is in stock.
func (s *Stock) Left(ctx context.Context) (int, error) { return s.read(ctx) }

func (s *Stock) read(ctx context.Context) (stock int, err error) {
	if err := s.db.QueryRowContext(ctx, s.selectSQL, productID).Scan(&stock); err != nil {
		return 0, fmt.Errorf("read the stock: %w", err)
	}
	return stock, nil
}

// take is the article's statement. It would not help to check the stock in it if the
// check were about anything more than a number in the same row: money, a seat, a mail.
func (s *Stock) take(ctx context.Context) error {
	if _, err := s.db.ExecContext(ctx, s.reduceSQL, productID); err != nil {
		return fmt.Errorf("reduce the stock: %w", err)
	}
	return nil
}

// fencedRow is the row for the holder of a token. It refuses one who has had the
// lock before and does not know that it is lost.
type fencedRow struct {
	stock *Stock
	token uint64
}

// read leaves its token in the row, so that the write of a former holder cannot come
// between this read and the write that follows from it. From an empty stock none
// follows.
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

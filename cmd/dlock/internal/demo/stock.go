package demo

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/dlock-go/dlock/fence"
)

const (
	productID   = 1                // the only product
	createLimit = 10 * time.Second // for a database to create the table
)

// row is the row of the product.
type row interface {
	// read returns what is in stock.
	read(ctx context.Context) (int, error)
	// take reduces the stock by one without a check.
	take(ctx context.Context) error
}

// stockTable is the table of products, in a database that all shops share.
type stockTable struct {
	db         *sql.DB
	table      string
	guard      *fence.Guard
	selectSQL  string // id
	reduceSQL  string // id
	restockSQL string // stock, id
}

// newTable returns a table name that no other program uses.
func newTable() string { return fmt.Sprintf("dlock_demo_%012x", rand.Uint64()>>16) }

// openStock returns a table that exists or will be created.
func openStock(db *database, table string) (*stockTable, error) {
	guard, err := fence.New(fence.Row{Dialect: db.dialect, Table: table, Key: "id"})
	if err != nil {
		return nil, err
	}
	first, second := "?", "?"
	if db.dialect == fence.PostgreSQL {
		first, second = "$1", "$2"
	}
	return &stockTable{
		db:         db.DB,
		table:      table,
		guard:      guard,
		selectSQL:  "SELECT stock FROM " + table + " WHERE id = " + first,
		reduceSQL:  "UPDATE " + table + " SET stock = stock - 1 WHERE id = " + first,
		restockSQL: "UPDATE " + table + " SET stock = " + first + " WHERE id = " + second,
	}, nil
}

// rowFor returns the row that a holder uses under a guard.
func (s *stockTable) rowFor(guard Guard, token uint64) row {
	if guard == Fenced {
		return &fencedRow{s, token}
	}
	return s
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

// drop removes the table.
func (s *stockTable) drop(ctx context.Context) error {
	return s.exec(ctx, "drop the table "+s.table, "DROP TABLE "+s.table)
}

// restock sets what is in stock.
func (s *stockTable) restock(ctx context.Context, number int) error {
	return s.exec(ctx, "fill the stock", s.restockSQL, number, productID)
}

func (s *stockTable) exec(ctx context.Context, what, statement string, values ...any) error {
	if _, err := s.db.ExecContext(ctx, statement, values...); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}

func (s *stockTable) read(ctx context.Context) (left int, err error) {
	if err := s.db.QueryRowContext(ctx, s.selectSQL, productID).Scan(&left); err != nil {
		return 0, fmt.Errorf("read the stock: %w", err)
	}
	return left, nil
}

// take does not check the stock: a statement cannot check money, a seat or a mail either.
func (s *stockTable) take(ctx context.Context) error {
	return s.exec(ctx, "reduce the stock", s.reduceSQL, productID)
}

// fencedRow is the row for the holder of a token. It refuses a former holder.
type fencedRow struct {
	*stockTable
	token uint64
}

// read writes its token into the row, so that a former holder cannot write between this
// read and the write that follows. No write follows if the stock is empty.
func (f *fencedRow) read(ctx context.Context) (left int, err error) {
	if left, err = f.stockTable.read(ctx); err != nil || left <= 0 {
		return left, err
	}
	err = f.guard.Do(ctx, f.db, productID, f.token, func(tx *sql.Tx) error {
		return tx.QueryRowContext(ctx, f.selectSQL, productID).Scan(&left)
	})
	return left, err
}

func (f *fencedRow) take(ctx context.Context) error {
	return f.guard.Do(ctx, f.db, productID, f.token, func(tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, f.reduceSQL, productID)
		return err
	})
}

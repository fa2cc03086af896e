package sqldb

import (
	"context"
	"database/sql"
	"encoding/json"
)

// ExecAll runs statements one after another, on a *sql.DB, a *sql.Conn or a *sql.Tx.
func ExecAll(ctx context.Context, on interface {
	ExecContext(context.Context, string, ...any) (sql.Result, error)
}, texts ...string) error {
	for _, text := range texts {
		if _, err := on.ExecContext(ctx, text); err != nil {
			return err
		}
	}
	return nil
}

// ScanAll reads an answer. It calls read for each row.
func ScanAll(rows *sql.Rows, err error, read func(scan func(...any) error) error) error {
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := read(rows.Scan); err != nil {
			return err
		}
	}
	if err := rows.Err(); err != nil {
		return err
	}
	return rows.Close() // what a statement writes is committed here
}

// JSON returns a list of strings and numbers, the form in which statements take many rows.
func JSON(list any) string {
	text, _ := json.Marshal(list) // cannot fail
	return string(text)
}

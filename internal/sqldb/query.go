package sqldb

import (
	"context"
	"database/sql"
	"encoding/json"
	"regexp"
	"strings"
)

// Query is a statement in the form in which a dialect runs it.
type Query struct {
	Text  string
	order []int // which of the arguments it takes; nil if they stay as they are
}

// Arrange returns the arguments in the order in which the text takes them.
func (q *Query) Arrange(args ...any) []any {
	if q.order == nil {
		return args
	}
	arranged := make([]any, len(q.order))
	for i, n := range q.order {
		arranged[i] = args[n]
	}
	return arranged
}

// parameter is how all texts write the first to the ninth argument: ?1, or ?1:text with
// the type, which PostgreSQL needs.
var parameter = regexp.MustCompile(`\?([1-9])(?::(text|int|json))?`)

// numbered writes parameters as ?1.
func numbered(text string) Query { return Query{Text: parameter.ReplaceAllString(text, "?$1")} }

var postgresTypes = map[string]string{"text": "::text", "int": "::bigint", "json": "::jsonb"}

// dollars writes parameters as $1, with their types.
func dollars(text string) Query {
	return Query{Text: parameter.ReplaceAllStringFunc(text, func(found string) string {
		return "$" + found[1:2] + postgresTypes[strings.TrimPrefix(found[2:], ":")]
	})}
}

// positional writes parameters as ?, which takes arguments in the order of the text.
func positional(text string) Query {
	q := Query{Text: parameter.ReplaceAllString(text, "?"), order: []int{}}
	for _, match := range parameter.FindAllStringSubmatch(text, -1) {
		q.order = append(q.order, int(match[1][0]-'1'))
	}
	return q
}

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

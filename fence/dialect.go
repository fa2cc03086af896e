package fence

import (
	"errors"
	"fmt"
	"strings"
)

// Dialect is a kind of database.
type Dialect int

// The dialects. MySQL is MariaDB as well.
const (
	SQLite Dialect = iota + 1
	MySQL
	PostgreSQL
)

// syntax is what differs between the dialects.
type syntax struct {
	quote       string             // around names
	placeholder func(n int) string // of the n-th argument
	lock        string             // makes a query read the latest row, and keep it
}

func question(int) string { return "?" }

func dollar(n int) string { return fmt.Sprintf("$%d", n) }

// SQLite needs no lock, because it has a single writer. Its names are in backticks, because it
// takes a double-quoted word for a text if there is no such column.
var syntaxes = map[Dialect]syntax{
	SQLite:     {quote: "`", placeholder: question},
	MySQL:      {quote: "`", placeholder: question, lock: " FOR UPDATE"},
	PostgreSQL: {quote: `"`, placeholder: dollar, lock: " FOR UPDATE"},
}

// guard writes the statements.
func (d Dialect) guard(row Row) (*Guard, error) {
	s, ok := syntaxes[d]
	if !ok {
		return nil, fmt.Errorf("unknown Row.Dialect %d", int(d))
	}
	table, badTable := s.table(row.Table)
	key, badKey := s.name(row.Key)
	column, badColumn := s.name(row.Column)
	if err := errors.Join(badTable, badKey, badColumn); err != nil {
		return nil, err
	}
	return &Guard{
		advance: fmt.Sprintf("UPDATE %s SET %s = %s WHERE %s = %s AND coalesce(%s, 0) <= %s",
			table, column, s.placeholder(1), key, s.placeholder(2), column, s.placeholder(3)),
		look: fmt.Sprintf("SELECT coalesce(%s, 0) FROM %s WHERE %s = %s%s",
			column, table, key, s.placeholder(1), s.lock),
	}, nil
}

// table is name for a table, perhaps with its schema.
func (s syntax) table(name string) (string, error) {
	schema, table, both := strings.Cut(name, ".")
	if !both {
		return s.name(name)
	}
	schema, badSchema := s.name(schema)
	table, badTable := s.name(table)
	return schema + "." + table, errors.Join(badSchema, badTable)
}

// name quotes a name, which may be a keyword of SQL, and checks it.
func (s syntax) name(name string) (string, error) {
	return s.quote + name + s.quote, checkName(name)
}

// maxName is the longest name that PostgreSQL does not truncate.
const maxName = 63

// checkName rejects names that would need an escape in any database.
func checkName(name string) error {
	if name == "" || len(name) > maxName {
		return fmt.Errorf("%w %q: it has 1 to %d characters", ErrBadName, name, maxName)
	}
	for i, c := range []byte(name) {
		letter := c == '_' || 'a' <= c|0x20 && c|0x20 <= 'z'
		if !letter && (i == 0 || c < '0' || c > '9') {
			return fmt.Errorf("%w %q: letters, digits and _ are allowed, and no digit at the start", ErrBadName, name)
		}
	}
	return nil
}

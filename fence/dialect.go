package fence

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
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
	holdsTokens func(databaseType string) bool
}

func question(int) string { return "?" }

func dollar(n int) string { return fmt.Sprintf("$%d", n) }

// SQLite needs no lock, because it has a single writer. Its names are in backticks, because it
// takes a double-quoted word for a text if there is no such column.
var syntaxes = map[Dialect]syntax{
	SQLite:     {quote: "`", placeholder: question, holdsTokens: isSQLiteInteger},
	MySQL:      {quote: "`", placeholder: question, lock: " FOR UPDATE", holdsTokens: isBigint},
	PostgreSQL: {quote: `"`, placeholder: dollar, lock: " FOR UPDATE", holdsTokens: isBigint},
}

// isBigint knows the names that the drivers of MySQL and PostgreSQL have for an integer of 64 bits.
func isBigint(databaseType string) bool {
	return slices.Contains([]string{"BIGINT", "UNSIGNED BIGINT", "INT8"}, databaseType)
}

// isSQLiteInteger follows SQLite, which keeps integers as they are in columns whose type has INT in its
// name, and in those without a type.
func isSQLiteInteger(declared string) bool {
	return declared == "" || strings.Contains(declared, "INT")
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
		look: fmt.Sprintf("SELECT %s FROM %s WHERE %s = %s%s",
			column, table, key, s.placeholder(1), s.lock),
		holdsTokens: s.holdsTokens,
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

// legal names need no escape in any database, and are not truncated by PostgreSQL.
var legal = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,62}$`)

// name quotes a name, which may be a keyword of SQL, and checks it.
func (s syntax) name(name string) (string, error) {
	if !legal.MatchString(name) {
		return "", fmt.Errorf("%w %q: 1 to 63 letters, digits and _ are allowed, and no digit at the start", ErrBadName, name)
	}
	return s.quote + name + s.quote, nil
}

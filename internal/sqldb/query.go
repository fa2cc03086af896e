package sqldb

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
)

// DefaultTablePrefix is the default of a store's option TablePrefix.
const DefaultTablePrefix = "dlock_"

// Tables are the names of the tables that stores with the same prefix use.
type Tables struct {
	Locks, Queue, Meta string // of locks that are rows
	Wake               string // the channel on which PostgreSQL notifies waiters
	Bound              string // the rows that transactions hold
	Fence              string // the source of the tokens of session locks
}

// maxPrefix leaves room for the rest of the name in every database.
const maxPrefix = 40

var tablePrefix = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// NewTables returns the names that begin with prefix. An empty prefix is the default.
func NewTables(prefix string) (*Tables, error) {
	prefix = cmp.Or(prefix, DefaultTablePrefix)
	if len(prefix) > maxPrefix {
		return nil, fmt.Errorf("table prefix %q has more than %d characters", prefix, maxPrefix)
	}
	if !tablePrefix.MatchString(prefix) {
		return nil, fmt.Errorf("table prefix %q: letters, digits and _ are allowed, and no digit at the start", prefix)
	}
	return &Tables{
		Locks: prefix + "locks", Queue: prefix + "queue", Meta: prefix + "meta",
		Wake:  strings.ToLower(prefix) + "wake", // the names of tables are the same in upper and lower case
		Bound: prefix + "bound", Fence: prefix + "fence",
	}, nil
}

// Expand puts the names of the tables and the expression for the clock into a text.
func (t *Tables) Expand(now, text string) string {
	return strings.NewReplacer("{locks}", t.Locks, "{queue}", t.Queue, "{meta}", t.Meta,
		"{bound}", t.Bound, "{fence}", t.Fence, "{wake}", t.Wake, "{now}", now).Replace(text)
}

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

// plain are texts that need no escape in any mode of MySQL, and are no NULL.
var plain = regexp.MustCompile(`^[ -&(-\[\]-~]+$`)

// WithLiterals returns the text of MySQL with the arguments in it: parameters cost a round trip more, and
// one of the prepared statements that the server has for all clients together. A text is a string of bytes, in
// hexadecimal digits unless it means the same whatever the settings of the connection are.
func (q Query) WithLiterals(args ...any) string {
	var b strings.Builder
	for i, part := range strings.Split(q.Text, "?") {
		if i > 0 {
			arg := args[q.order[i-1]]
			value, err := driver.DefaultParameterConverter.ConvertValue(arg)
			if err != nil { // a number beyond the signed ones
				value = arg
			}
			switch value := value.(type) {
			case string:
				if plain.MatchString(value) {
					fmt.Fprintf(&b, "_binary'%s'", value)
				} else {
					fmt.Fprintf(&b, "x'%x'", value)
				}
			case nil:
				b.WriteString("NULL")
			default:
				fmt.Fprint(&b, value)
			}
		}
		b.WriteString(part)
	}
	return b.String()
}

// parameter is how all texts write the first to the ninth argument: ?1, or ?1:text with
// the type, which PostgreSQL needs.
var parameter = regexp.MustCompile(`\?([1-9])(?::(text|int|json))?`)

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

// Queryer is a *sql.DB, a *sql.Conn or a *sql.Tx.
type Queryer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// ExecAll runs statements one after another.
func ExecAll(ctx context.Context, on Queryer, texts ...string) error {
	for _, text := range texts {
		if _, err := on.ExecContext(ctx, text); err != nil {
			return err
		}
	}
	return nil
}

// Each calls read for each row that a query returns.
func Each(query func() (*sql.Rows, error), read func(scan func(...any) error) error) error {
	rows, err := query()
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
	return unescape.Replace(string(text))
}

// unescape undoes the escapes that PostgreSQL accepts only if the encoding of the database is UTF8, or
// knows the character. It leaves alone a backslash of a name.
var unescape = strings.NewReplacer(`\\`, `\\`, `\u2028`, "\u2028", `\u2029`, "\u2029")

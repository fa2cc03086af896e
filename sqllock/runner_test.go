package sqllock

import (
	"reflect"
	"testing"
)

func TestStatementForms(t *testing.T) {
	const text = `UPDATE t SET a = ?2, b = ?1 + ?3 WHERE name = ?1`
	if got, want := dollars(text).text, `UPDATE t SET a = $2, b = $1 + $3 WHERE name = $1`; got != want {
		t.Errorf("dollars: %s, want %s", got, want)
	}
	q := positional(text)
	if want := `UPDATE t SET a = ?, b = ? + ? WHERE name = ?`; q.text != want {
		t.Errorf("positional: %s, want %s", q.text, want)
	}
	if got, want := q.arrange([]any{"name", 2, 3}), []any{2, "name", 3, "name"}; !reflect.DeepEqual(got, want) {
		t.Errorf("arranged as %v, want %v", got, want)
	}
	q = positional(`SELECT 1`)
	if got := q.arrange(nil); len(got) != 0 {
		t.Errorf("a statement without arguments gets %v", got)
	}
}

// TestEveryDialectHasEveryStatement: only SQLite, where acquire inserts, renew
// answers and no row is locked, does without the three that are for the others.
func TestEveryDialectHasEveryStatement(t *testing.T) {
	tables, err := newTables("")
	if err != nil {
		t.Fatal(err)
	}
	for _, dialect := range []Dialect{SQLite, MySQL, Postgres} {
		for s, q := range dialect.statements(tables) {
			optional := dialect == SQLite && (statement(s) == insertFree || statement(s) == renewed || statement(s) == renewAtOnce) ||
				dialect == Postgres && statement(s) == renewed
			if q.text == "" && !optional {
				t.Errorf("%s has no text for statement %d", dialect, s)
			}
		}
	}
}

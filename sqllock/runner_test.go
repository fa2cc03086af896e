package sqllock

import (
	"testing"
)

// TestEveryDialectHasEveryStatement: only SQLite, where acquire inserts, renew
// answers and no row is locked, does without the three that are for the others.
func TestEveryDialectHasEveryStatement(t *testing.T) {
	for _, dialect := range []Dialect{SQLite, MySQL, Postgres} {
		for s, text := range dialects[dialect].statements() {
			optional := dialect == SQLite && (statement(s) == insertFree || statement(s) == renewed || statement(s) == renewAtOnce) ||
				dialect == Postgres && statement(s) == renewed
			if text == "" && !optional {
				t.Errorf("%s has no text for statement %d", dialect, s)
			}
		}
	}
}

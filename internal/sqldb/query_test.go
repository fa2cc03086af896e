package sqldb

import (
	"reflect"
	"testing"
)

func TestParameterForms(t *testing.T) {
	const text = `UPDATE t SET a = ?2:int, b = ?1 + ?3 WHERE name = ?1:text`
	if got, want := dollars(text).Text, `UPDATE t SET a = $2::bigint, b = $1 + $3 WHERE name = $1::text`; got != want {
		t.Errorf("dollars: %s, want %s", got, want)
	}
	q := positional(text)
	if want := `UPDATE t SET a = ?, b = ? + ? WHERE name = ?`; q.Text != want {
		t.Errorf("positional: %s, want %s", q.Text, want)
	}
	if got, want := q.Arrange("name", 2, 3), []any{2, "name", 3, "name"}; !reflect.DeepEqual(got, want) {
		t.Errorf("arranged as %v, want %v", got, want)
	}
	q = positional(`SELECT 1`)
	if got := q.Arrange(); len(got) != 0 {
		t.Errorf("a statement without arguments gets %v", got)
	}
}

// TestLiterals: a text that could end its literal, or whose meaning depends on a setting, is written in digits.
func TestLiterals(t *testing.T) {
	q := positional(`SELECT ?2, ?1:text, ?1:text, ?3:int`)
	for text, want := range map[string]string{
		`["a",1]`: `_binary'["a",1]'`, "": `x''`, `it's`: `x'69742773'`, `a\b`: `x'615c62'`, "ü": `x'c3bc'`, "a\n": `x'610a'`,
	} {
		if got := q.WithLiterals(text, nil, int64(7)); got != "SELECT NULL, "+want+", "+want+", 7" {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}

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

package fence

import (
	"errors"
	"strings"
	"testing"
)

func TestStatements(t *testing.T) {
	for _, c := range []struct {
		row           Row
		advance, look string
	}{
		{
			Row{Dialect: SQLite, Table: "orders", Key: "id"},
			"UPDATE `orders` SET `fence` = ? WHERE `id` = ? AND coalesce(`fence`, 0) <= ?",
			"SELECT `fence` FROM `orders` WHERE `id` = ?",
		},
		{
			Row{Dialect: MySQL, Table: "shop.order", Key: "key", Column: "token"},
			"UPDATE `shop`.`order` SET `token` = ? WHERE `key` = ? AND coalesce(`token`, 0) <= ?",
			"SELECT `token` FROM `shop`.`order` WHERE `key` = ? FOR UPDATE",
		},
		{
			Row{Dialect: PostgreSQL, Table: "shop.order", Key: "key"},
			`UPDATE "shop"."order" SET "fence" = $1 WHERE "key" = $2 AND coalesce("fence", 0) <= $3`,
			`SELECT "fence" FROM "shop"."order" WHERE "key" = $1 FOR UPDATE`,
		},
	} {
		guard, err := New(c.row)
		if err != nil {
			t.Errorf("%+v: %v", c.row, err)
			continue
		}
		if guard.advance != c.advance || guard.look != c.look {
			t.Errorf("%+v:\n%s\n%s\nwant\n%s\n%s", c.row, guard.advance, guard.look, c.advance, c.look)
		}
	}
}

func TestBadNamesAreRefused(t *testing.T) {
	bad := []string{
		"", ".", "a.", ".a", "a.b.c", "a b", "1a", "a-b", "a;", "a`b", `a"b`, "a'b", "a\x00b", "tür", "a\n",
		"orders; DROP TABLE orders; --", strings.Repeat("a", 63+1),
	}
	for _, dialect := range []Dialect{SQLite, MySQL, PostgreSQL} {
		for _, name := range bad {
			rows := []Row{
				{Dialect: dialect, Table: name, Key: "id"},
				{Dialect: dialect, Table: "orders", Key: name},
			}
			if name != "" { // which is the default
				rows = append(rows, Row{Dialect: dialect, Table: "orders", Key: "id", Column: name})
			}
			for _, row := range rows {
				if _, err := New(row); !errors.Is(err, ErrBadName) {
					t.Errorf("New(%+v): %v, want that the name is bad", row, err)
				}
			}
		}
		if _, err := New(Row{Dialect: dialect, Table: strings.Repeat("a", 63), Key: "_1"}); err != nil {
			t.Error(err)
		}
	}
	if _, err := New(Row{Dialect: SQLite, Table: "orders", Key: "a.b"}); !errors.Is(err, ErrBadName) {
		t.Errorf("a column with a schema: %v", err)
	}
}

func TestDialectIsNeeded(t *testing.T) {
	for _, dialect := range []Dialect{0, -1, PostgreSQL + 1} {
		if _, err := New(Row{Dialect: dialect, Table: "orders", Key: "id"}); err == nil || !strings.Contains(err.Error(), "Dialect") {
			t.Errorf("New for dialect %d: %v", dialect, err)
		}
	}
}

func TestNoTokensAreRefused(t *testing.T) {
	guard, err := New(Row{Dialect: SQLite, Table: "orders", Key: "id"})
	if err != nil {
		t.Fatal(err)
	}
	for _, token := range []uint64{0, 1 << 63, 1<<64 - 1} {
		if err := guard.Advance(t.Context(), nil, 1, token); err == nil || !strings.Contains(err.Error(), "not a token") {
			t.Errorf("token %d: %v", token, err)
		}
	}
}

func TestStaleErrorIsErrStale(t *testing.T) {
	err := error(&StaleError{Token: 3, Seen: 5})
	if !errors.Is(err, ErrStale) {
		t.Error("a StaleError is not ErrStale")
	}
	if got, want := err.Error(), "another holder has had the lock since: token 3 was rejected after token 5"; got != want {
		t.Errorf("it says %q, want %q", got, want)
	}
}

package sqlsession

import (
	"crypto/sha256"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/sqldb"
)

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		opts *Options
		want string
	}{
		{nil, "Dialect is not set"},
		{&Options{}, "Dialect is not set"},
		{&Options{Dialect: 7}, "unknown dialect 7"},
		{&Options{Dialect: sqldb.SQLite, Scheme: Session}, "use scheme row"},
		{&Options{Dialect: sqldb.SQLite, Scheme: ForUpdate}, "use scheme row"},
		{&Options{Dialect: MySQL, Scheme: Session, TablePrefix: "a-b"}, "table prefix"},
		{&Options{Dialect: MySQL, Scheme: 7}, "unknown scheme 7 (want session or forupdate)"},
		{&Options{Dialect: Postgres, Scheme: -1}, "unknown scheme -1"},
	} {
		_, err := New(t.Context(), nil, c.opts)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("New with %+v: want an error that says %q, got: %v", c.opts, c.want, err)
		}
		if c.want == "use scheme row" && !errors.Is(err, driver.ErrUnsupported) {
			t.Errorf("New with %+v: want ErrUnsupported, got: %v", c.opts, err)
		}
	}
}

// TestServerKeys: the server's names of locks have a length that it allows, and differ
// in more than case.
func TestServerKeys(t *testing.T) {
	t.Parallel()
	s := &Store{dialect: &mysqlDialect, domain: "session\x00dlock_locks\x00db\x00"}
	seen := make(map[string]string)
	for _, name := range []string{"a", "A", "a ", " a", strings.Repeat("x", 255), strings.Repeat("x", 254) + "X"} {
		key := s.key(name).server.(string)
		if len(key) > 64 || key != strings.ToLower(key) {
			t.Errorf("%q becomes %q", name, key)
		}
		if other, used := seen[key]; used {
			t.Errorf("%q and %q are the same", name, other)
		}
		seen[key] = name
	}
}

func TestKeyList(t *testing.T) {
	t.Parallel()
	var one, two [sha256.Size]byte
	one[0], two[7] = 0xff, 1
	for _, c := range []struct {
		dialect *dialect
		want    string
	}{
		{&mysqlDialect, `["dlock_ff00000000000000000000000000000000000000","dlock_0000000000000001000000000000000000000000"]`},
		{&postgresDialect, "[-72057594037927936,1]"},
	} {
		if got := sqldb.JSON([]any{c.dialect.keyOf(one), c.dialect.keyOf(two)}); got != c.want {
			t.Errorf("%s, want %s", got, c.want)
		}
	}
}

// TestPollPause: polls get rarer the longer nothing changes, within limits.
func TestPollPause(t *testing.T) {
	t.Parallel()
	last, polls := time.Duration(0), 0
	for unchanged := time.Duration(0); unchanged < time.Minute; polls++ {
		pause := pollPause(unchanged)
		if pause < last || pause < minPoll || pause > maxPoll {
			t.Fatalf("after %v the pause is %v, after %v", unchanged, pause, last)
		}
		last = pause
		unchanged += pause
	}
	if polls > 1000 {
		t.Errorf("%d polls in a minute in which nothing changes", polls)
	}
}

package sqlurl

import (
	"cmp"
	"fmt"
	"strings"
	"testing"

	"github.com/dlock-go/dlock/driver"
)

func locate(t *testing.T, raw string) driver.Location {
	t.Helper()
	u, err := Parse(raw)
	if err != nil {
		t.Fatalf("%s: %v", raw, err)
	}
	return u.Location(t.Context(), cmp.Or(u.Scheme, "row"), u.TablePrefix)
}

// TestLocation: all spellings of a store are one, and different stores are not.
func TestLocation(t *testing.T) {
	for _, variable := range []string{"PGHOST", "PGPORT", "PGDATABASE", "PGUSER", "PGSERVICE"} {
		t.Setenv(variable, "") // what the machine has must not matter
	}
	stores := [][]string{
		{"mysql://h/db", "mysql://H:3306/db", "mariadb://ann:secret@h/db", "mysql://ann@h/db?scheme=row&tls=true", "MYSQL://h:/db?table_prefix=dlock_&timeout=3s"},
		{"mysql://localhost/db", "mysql:///db", "mysql://:3306/db", "mysql://ann:secret@/db"},
		{"mysql://h/other"},
		{"mysql://h:3307/db"},
		{"mysql://h/db?scheme=version"},
		{"mysql://h/db?scheme=session", "mysql://h:3306/db?scheme=session"},
		{"mysql://h/db?scheme=forupdate"},
		{"mysql://h/db?table_prefix=mine_"},
		{"mysql://[::1]/db", "mysql://ann:secret@[::1]:3306/db"},
		{"mysql:///db?socket=/no/such/sock", "mysql://ann:secret@/db?socket=%2Fno%2Fsuch%2Fsock"},
		{"postgres://h/db", "postgresql://H:5432/db", "postgres://ann:secret@h/db?sslmode=disable", "postgres://h/db?scheme=row", "postgres:///db?host=h", "postgres://h/?dbname=db"},
		{"postgres://h/other"},
		{"postgres://h:5433/db", "postgres://h/db?port=5433"},
		{"postgres://h/db?scheme=session"},
		{"postgres://h/db?table_prefix=mine_"},
		{"postgres://[::1]/db", "postgres://ann:secret@[::1]:5432/db"},
		{"postgres://a,b/db", "postgres://b:5432,a/db"},
		{"postgres:///db?host=/no/such/folder", "postgres://ann:secret@%2Fno%2Fsuch%2Ffolder/db"},
	}
	seen := make(map[string]string)
	for _, spellings := range stores {
		first := ""
		for _, raw := range spellings {
			at := locate(t, raw)
			if strings.Contains(at.Identity+at.URL, "secret") {
				t.Errorf("%s: the password is in %q or %q", raw, at.Identity, at.URL)
			}
			first = cmp.Or(first, at.Identity)
			if at.Identity != first {
				t.Errorf("%s is %q, and %s is %q; want the same", spellings[0], first, raw, at.Identity)
			}
			if again := locate(t, at.URL); again != at {
				t.Errorf("%s is shown as %s, which is %q", raw, at.URL, again)
			}
		}
		if other, twice := seen[first]; twice {
			t.Errorf("%s and %s are both %q", other, spellings[0], first)
		}
		seen[first] = spellings[0]
	}
}

// Stores that keep no holder recognise a nested dlock by the identity. Two names of one host
// must not wait for each other.
func TestIdentityOfResolvedHosts(t *testing.T) {
	for _, pattern := range []string{"mysql://%s/db?scheme=session", "postgres://%s/db?scheme=forupdate"} {
		want := ""
		for _, host := range []string{"localhost", "127.0.0.1", "[::1]", "127.0.0.2", "LOCALHOST"} {
			got := locate(t, fmt.Sprintf(pattern, host)).Identity
			want = cmp.Or(want, got)
			if got != want {
				t.Errorf("the identity of %s is %q, that of localhost is %q", host, got, want)
			}
		}
	}
}

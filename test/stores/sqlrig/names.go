package sqlrig

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/dlock-go/dlock/driver"
)

// OddNames are all different, whatever a database's collation thinks of them.
var OddNames = []string{
	"a", "A", "a ", " a", "a  ", "a/b", "a/b/c", "a%", "a_", "ab", "a*", "a?", "a[b]", `a\`, `a\\`, `it's`, `"quoted"`, "a;--", "a`b", "$1", "?", ":name", "{a}",
	"ä", "Ä", "a\u0308", "ß", "ss", "ı", "i", "İ", "名前", "🔒", "🔒🔒", "\u200b", "\u00a0", "null", "NULL", "0", "00", "1e3", "0x10", "\ufffd",
	strings.Repeat("x", driver.MaxNameBytes), strings.Repeat("x", driver.MaxNameBytes-1), strings.Repeat("🔒", driver.MaxNameBytes/4), strings.Repeat("名", driver.MaxNameBytes/3),
}

// Names shows that each is a lock of its own, and is listed as it is.
func (d *Database) Names(t *testing.T, raw string) {
	t.Helper()
	store, rival := d.Opened(t, raw), d.Opened(t, raw)
	grants := make(map[string]driver.Grant)
	for _, name := range OddNames {
		grant, err := store.Acquire(Within(t), Request(name))
		if err != nil {
			t.Errorf("Acquire(%q): %v", name, err)
			continue
		}
		grants[name] = grant
	}
	for _, prefix := range append([]string{"", "名", "nothing", "a%b"}, OddNames...) {
		var want, got []string
		for _, name := range OddNames {
			if strings.HasPrefix(name, prefix) {
				want = append(want, name)
			}
		}
		for info, err := range rival.List(Within(t), prefix) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, info.Name)
			if info.Holder.Note != info.Name {
				t.Errorf("%q has the holder of %q", info.Name, info.Holder.Note)
			}
		}
		slices.Sort(want)
		slices.Sort(got)
		if !slices.Equal(want, got) {
			t.Errorf("prefix %q lists %q, want %q", prefix, got, want)
		}
	}
	for name, grant := range grants {
		if _, err := rival.Acquire(Within(t), Request(name)); !errors.Is(err, driver.ErrHeld) {
			t.Errorf("Acquire(%q) of a rival: %v; want ErrHeld", name, err)
		}
		if errs := store.Renew(Within(t), []driver.Grant{grant}); errs != nil {
			t.Errorf("Renew(%q): %v", name, errs[0])
		}
		if err := store.Release(Within(t), grant); err != nil {
			t.Errorf("Release(%q): %v", name, err)
		}
	}
}

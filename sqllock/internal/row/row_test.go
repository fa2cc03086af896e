package row

import (
	"fmt"
	"strings"
	"testing"

	"github.com/dlock-go/dlock/driver"
)

var (
	shared = driver.Mode{Shared: true}
	two    = driver.Mode{Limit: 2}
)

// at returns the lock of a row as it is read at a later time.
func (l *Lock) at(now int64) *Lock {
	row := l.Row()
	row.Now = now
	return Decode(row)
}

// TestSharesExpireByThemselves: a share that is not renewed ends at its own time. The row lasts
// as long as the last share, and its tokens rise.
func TestSharesExpireByThemselves(t *testing.T) {
	l := Decode(Row{Token: 7, Now: 1000})
	if a, b := l.Admit(shared, "a", driver.Holder{}, 1, 500), l.Admit(shared, "b", driver.Holder{}, 10, 100); a != 8 || b != 18 {
		t.Errorf("the tokens are %d and %d", a, b)
	}
	if row := l.Row(); row.Expires != 1500 || row.Token != 18 || row.Since != 1000 {
		t.Errorf("the row is %+v", row)
	}
	l = l.at(1050)
	if l.Admit(shared, "b", driver.Holder{}, 10, 20) != 18 || l.Of("b").Expires != 1100 {
		t.Errorf("a repeated request makes of a share %+v", l.Of("b"))
	}
	l = l.at(1100)
	if l.Renew("b", 0, 900) || !l.Renew("a", 8, 500) || l.Renew("a", 9, 900) {
		t.Error("a share that has expired was renewed, or one that has not was not")
	}
	if l.Excluding(driver.Mode{}) == nil || l.Excluding(shared) != nil {
		t.Error("a shared holder does not exclude exclusive ones, or excludes shared ones")
	}
	if row := l.Row(); row.Expires != 1600 {
		t.Errorf("the row is %+v", row)
	}
	if l = l.at(1600); l.Excluding(driver.Mode{}) != nil {
		t.Error("a lock without shares is held")
	}
}

// TestReleaseEndsOneShare: Release and End end the share that they name, and the row is free after
// the last one.
func TestReleaseEndsOneShare(t *testing.T) {
	l := Decode(Row{Now: 1000})
	first, second := l.Admit(two, "a", driver.Holder{}, 1, 500), l.Admit(two, "b", driver.Holder{}, 1, 900)
	if row := l.Row(); row.Expires != 1900 {
		t.Errorf("the row is %+v", row)
	}
	if l.Excluding(two) == nil || l.Excluding(shared) == nil || l.Excluding(driver.Mode{Limit: 3}) == nil {
		t.Error("two permits of two exclude no other")
	}
	l = l.at(1001)
	if l.Release("a", second) || l.Release("c", 0) || l.End(99, 99) {
		t.Error("a share was ended by another's owner or token")
	}
	if !l.Release("a", first) || l.Release("a", 0) || l.Excluding(two) != nil {
		t.Error("a share was not ended once")
	}
	if row := l.Row(); row.Expires != 1900 {
		t.Errorf("the row is %+v", row)
	}
	if !l.End(second, second) || l.Row().Owner != "" || l.Row().Token != second {
		t.Errorf("the row is %+v", l.Row())
	}
}

// TestDowngrade: an exclusive lock becomes a shared one with the same token and expiry. A row with a marker but
// without a list, or the other way round, is held exclusively.
func TestDowngrade(t *testing.T) {
	exclusive := Row{Token: 7, Owner: "0123456789abcdef0123456789abcdef", Since: 900, Expires: 1500, Holder: `{"program":"p"}`, Now: 1000}
	l := Decode(exclusive)
	if l.Downgrade("another", 7) || l.Downgrade(exclusive.Owner, 6) || l.Release(exclusive.Owner, 7) || l.Renew(exclusive.Owner, 7, 100) {
		t.Error("an exclusive lock was changed as a share")
	}
	for range 2 {
		if !l.Downgrade(exclusive.Owner, 7) {
			t.Error("an exclusive lock was not downgraded")
		}
	}
	l = l.at(1001)
	if s := l.Of(exclusive.Owner); l.Mode != shared || s == nil || s.Token != 7 || s.Expires != 1500 || s.Since != 900 || s.Holder.Program != "p" {
		t.Errorf("the lock is %+v after a downgrade", l)
	}
	for _, row := range []Row{
		{Token: 1, Owner: "shared", Expires: 1500, Holder: "?", Now: 1000},
		{Token: 1, Owner: "another", Expires: 1500, Holder: l.Row().Holder, Now: 1000},
	} {
		if l := Decode(row); l.Excluding(shared) == nil || l.Excluding(two) == nil {
			t.Errorf("%+v is not held exclusively", row)
		}
	}
}

// TestDamagedList: a list that cannot be read excludes all, does not show the owners in it, and can be
// broken with the token of the row.
func TestDamagedList(t *testing.T) {
	l := Decode(Row{Now: 1000})
	token := l.Admit(shared, "secret", driver.Holder{}, 1, 500)
	row := l.Row()
	row.Holder = row.Holder[:len(row.Holder)-1]
	l = Decode(row)
	if h := l.Excluding(shared); h == nil || h.Token != token || strings.Contains(fmt.Sprint(h.Holder), "secret") {
		t.Errorf("a damaged list is held by %+v", h)
	}
	if l.Release("shared", 0) || l.Renew("shared", token, 900) || l.End(token+1, token+1) {
		t.Error("a damaged list was changed without its token")
	} else if !l.End(token, token) || l.Row().Owner != "" {
		t.Errorf("the row is %+v after it was broken", l.Row())
	}
}

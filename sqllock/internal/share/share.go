// Package share is the state of a lock that may have several holders, in the one row that a
// name has. What is done to the state is decided here; the caller keeps the row locked
// from when it reads it until it writes it.
//
// The holders are a list in the column of the holder. The column of the owner has a marker,
// which is the owner of no acquisition, and the row expires with the last of the holders. So
// versions of dlock that do not know shared locks take the lock for one that is held.
package share

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/dlock-go/dlock/driver"
)

// The markers in the column of the owner.
const (
	markShared  = "shared"
	markPermits = "permits"
)

// Row is the row of a name. Times are in milliseconds, by the database's clock.
type Row struct {
	Token   int64  // the last one of the name
	Owner   string // of an exclusive holder, or a marker; empty if the lock is free
	Since   int64  // when the lock was granted last
	Expires int64
	Holder  string
	Now     int64 // when the row was read
}

// Share is one holder's part of a lock.
type Share struct {
	Owner   string        `json:"owner"`
	Token   int64         `json:"token"` // the last one of the grant
	Since   int64         `json:"since"`
	Expires int64         `json:"expires"`
	Holder  driver.Holder `json:"holder"`
}

// list is the text in the column of the holder. It starts with its shares, as no holder does.
type list struct {
	Shares []Share `json:"shares"`
	Limit  int     `json:"limit,omitempty"`
	driver.Holder
}

const listStart = `{"shares":[`

// Lock is what a row says. An exclusive share is the only one.
type Lock struct {
	Mode    driver.Mode // of all shares
	Shares  []Share     // without those that have expired
	damaged bool        // the row has several holders, but its list cannot be read
	row     Row
}

// Decode returns what the row says. A row that is held in a way that this version does not know is
// held exclusively.
func Decode(row Row) *Lock {
	l := &Lock{row: row}
	if row.Owner == "" || row.Expires <= row.Now {
		return l
	}
	isList := row.Owner == markShared || row.Owner == markPermits
	if all, ok := parse(row.Holder); ok && isList {
		l.Mode, l.Shares = driver.Mode{Shared: all.Limit == 0, Limit: all.Limit}, all.Shares
		l.Shares = slices.DeleteFunc(l.Shares, func(s Share) bool { return s.Expires <= row.Now })
		return l
	}
	l.damaged = isList
	l.Shares = []Share{{row.Owner, row.Token, row.Since, row.Expires, decodeHolder(row.Holder)}}
	return l
}

// decodeHolder is driver.DecodeHolder, which takes a text that it cannot read for a note. The owners in
// a damaged list are secret.
func decodeHolder(text string) driver.Holder {
	h := driver.DecodeHolder(text)
	if h.Note == text && strings.Contains(text, `"owner":`) {
		return driver.Holder{Note: "a damaged list of holders"}
	}
	return h
}

// DecodeHeld returns what is known of a row that is held for the remaining milliseconds, by a holder
// or a list of holders.
func DecodeHeld(token int64, holder string, since, remaining int64) *Lock {
	row := Row{Token: token, Owner: "?", Since: since, Expires: remaining, Holder: holder}
	if all, ok := parse(holder); ok {
		row.Owner = markShared
		row.Expires = lastExpiry(all.Shares)
		row.Now = row.Expires - remaining
	}
	return Decode(row)
}

func parse(holder string) (all list, ok bool) {
	if !strings.HasPrefix(holder, listStart) {
		return list{}, false
	}
	err := json.Unmarshal([]byte(holder), &all)
	return all, err == nil && len(all.Shares) > 0
}

func lastExpiry(shares []Share) (last int64) {
	for i := range shares {
		last = max(last, shares[i].Expires)
	}
	return last
}

// Row returns the row as it has to be written.
func (l *Lock) Row() Row {
	row := l.row
	switch {
	case len(l.Shares) == 0:
		row.Owner, row.Expires, row.Holder = "", row.Now, `{}`
		return row
	case l.Mode == driver.Mode{}:
		row.Expires = l.Shares[0].Expires
		return row
	}
	all := list{Shares: l.Shares, Limit: l.Mode.Limit, Holder: driver.Holder{Program: "shared holders"}}
	row.Owner = markShared
	if l.Mode.Limit > 0 {
		row.Owner, all.Program = markPermits, "holders of permits"
	}
	text, _ := json.Marshal(&all) // strings and numbers: cannot fail
	row.Expires, row.Holder = lastExpiry(l.Shares), string(text)
	return row
}

// Remaining returns the milliseconds until a share expires.
func (l *Lock) Remaining(s *Share) int64 { return s.Expires - l.row.Now }

// Of returns the owner's share, or nil.
func (l *Lock) Of(owner string) *Share {
	i := slices.IndexFunc(l.Shares, func(s Share) bool { return s.Owner == owner })
	if i < 0 {
		return nil
	}
	return &l.Shares[i]
}

// held returns the owner's share with that token, whatever it is if the token is zero. It returns
// nil if the owner holds nothing beside others: an exclusive share is not in a list.
func (l *Lock) held(owner string, token int64) *Share {
	s := l.Of(owner)
	if s == nil || l.Mode == (driver.Mode{}) || token != 0 && s.Token != token {
		return nil
	}
	return s
}

// Excluding returns a share that excludes a new holder with mode, or nil: that which a waiter
// waits for.
func (l *Lock) Excluding(mode driver.Mode) *Share {
	switch {
	case len(l.Shares) == 0:
		return nil
	case l.Mode.Limit != mode.Limit:
		return &l.Shares[0]
	case mode.Limit > len(l.Shares), mode.Shared && l.Mode.Shared:
		return nil
	}
	found := &l.Shares[0] // one permit is enough, and all readers have to leave
	for i := range l.Shares {
		if s := &l.Shares[i]; mode.Limit > 0 && s.Expires < found.Expires || mode.Limit == 0 && s.Expires > found.Expires {
			found = s
		}
	}
	return found
}

// Admit gives owner a share, or extends the one it has, and returns its token. The lock excludes no
// holder with this mode.
func (l *Lock) Admit(mode driver.Mode, owner string, holder driver.Holder, tokenStep, ttl int64) int64 {
	s := l.Of(owner)
	if s == nil {
		l.Mode = mode
		l.row.Token += tokenStep
		l.row.Since = l.row.Now
		l.Shares = append(l.Shares, Share{Owner: owner, Token: l.row.Token, Since: l.row.Now, Holder: holder})
		s = &l.Shares[len(l.Shares)-1]
		if mode == (driver.Mode{}) {
			l.row.Owner, l.row.Holder = owner, holder.Encode()
		}
	}
	s.Expires = max(s.Expires, l.row.Now+ttl)
	return s.Token
}

// Renew extends a share, and reports whether there is one.
func (l *Lock) Renew(owner string, token, ttl int64) bool {
	s := l.held(owner, token)
	if s != nil {
		s.Expires = max(s.Expires, l.row.Now+ttl)
	}
	return s != nil
}

// Release ends a share, and reports whether there was one. A token of zero stands for any.
func (l *Lock) Release(owner string, token int64) bool {
	s := l.held(owner, token)
	return s != nil && l.Break(s.Token, s.Token)
}

// Break ends the share whose token is one of first to last, and reports whether there was one. The
// shares of a damaged list have the last token of the row and end together.
func (l *Lock) Break(first, last int64) bool {
	if l.Mode == (driver.Mode{}) && !l.damaged {
		return false
	}
	before := len(l.Shares)
	l.Shares = slices.DeleteFunc(l.Shares, func(s Share) bool { return first <= s.Token && s.Token <= last })
	return len(l.Shares) < before
}

// Downgrade makes an exclusive share of owner a shared one. It reports whether owner has a
// share with that token that is not a permit.
func (l *Lock) Downgrade(owner string, token int64) bool {
	if s := l.Of(owner); s == nil || s.Token != token || l.Mode.Limit > 0 {
		return false
	}
	l.Mode.Shared = true
	return true
}

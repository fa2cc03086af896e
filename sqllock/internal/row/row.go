// Package row is how a lock that may have several holders is written into the one row that a name has.
// The caller keeps the row locked from when it reads it until it writes it.
//
// Several holders are a list in the column of the holder. The column of the owner then has a marker,
// which is the owner of no acquisition, and the row expires with the last of the holders. So what is
// true of a row with one holder, that it is held until it expires, is true of this one.
package row

import (
	"database/sql"
	"encoding/json"
	"slices"
	"strings"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/share"
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

// Share is one holder's part of a lock. Its token is the last one of the grant.
type Share = share.Share[string]

// list is the text in the column of the holder.
type list struct {
	Shares []Share `json:"shares"`
	Limit  int     `json:"limit,omitempty"`
	driver.Holder
}

// Lock is what a row says, without shares that have expired.
type Lock struct {
	share.Lock[string]
	row Row
}

// Decode returns what the row says. A list that cannot be read counts as one exclusive holder.
func Decode(r Row) *Lock {
	l := &Lock{row: r}
	if r.Owner == "" || r.Expires <= r.Now {
		return l
	}
	l.Shares = []Share{{Owner: r.Owner, Token: r.Token, Since: r.Since, Expires: r.Expires, Holder: decodeHolder(r.Holder)}}
	var all list
	isList := r.Owner == markShared || r.Owner == markPermits
	if isList && json.Unmarshal([]byte(r.Holder), &all) == nil && len(all.Shares) > 0 {
		l.Mode, l.Shares = driver.Mode{Shared: all.Limit == 0, Limit: all.Limit}, all.Shares
	}
	l.Expire(r.Now)
	return l
}

// decodeHolder is driver.DecodeHolder, which takes a text that it cannot read for a note. The owners in
// a list that cannot be read are secret.
func decodeHolder(text string) driver.Holder {
	h := driver.DecodeHolder(text)
	if h.Note == text && strings.Contains(text, `"owner":`) {
		return driver.Holder{Note: "a damaged list of holders"}
	}
	return h
}

// Read reads the columns token, owner, since, expires, holder and now, which come between others.
func Read(scan func(...any) error, before []any, after ...any) (*Lock, error) {
	var r Row
	var owner sql.NullString
	own := []any{&r.Token, &owner, &r.Since, &r.Expires, &r.Holder, &r.Now}
	if err := scan(slices.Concat(before, own, after)...); err != nil {
		return nil, err
	}
	r.Owner = owner.String
	return Decode(r), nil
}

// Row returns the row as it has to be written.
func (l *Lock) Row() Row {
	r := l.row
	switch {
	case len(l.Shares) == 0:
		r.Owner, r.Expires, r.Holder = "", r.Now, `{}`
		return r
	case l.Mode == driver.Mode{}:
		r.Expires = l.Shares[0].Expires
		return r
	}
	all := list{Shares: l.Shares, Limit: l.Mode.Limit, Holder: driver.Holder{Program: "shared holders"}}
	r.Owner = markShared
	if l.Mode.Limit > 0 {
		r.Owner, all.Program = markPermits, "holders of permits"
	}
	text, _ := json.Marshal(&all) // strings and numbers: cannot fail
	r.Expires, r.Holder = 0, string(text)
	for i := range l.Shares {
		r.Expires = max(r.Expires, l.Shares[i].Expires)
	}
	return r
}

// Now is when the row was read.
func (l *Lock) Now() int64 { return l.row.Now }

// Remaining returns the milliseconds until a share expires.
func (l *Lock) Remaining(s *Share) int64 { return s.Expires - l.row.Now }

// held returns the owner's share with that token, whatever it is if the token is zero. It returns
// nil if the owner holds nothing beside others: an exclusive share is not in a list.
func (l *Lock) held(owner string, token int64) *Share {
	s := l.Of(owner)
	if s == nil || l.Mode == (driver.Mode{}) || token != 0 && s.Token != token {
		return nil
	}
	return s
}

// Admit gives owner a share, or extends the one it has, and returns its token. The lock excludes no
// holder with this mode.
func (l *Lock) Admit(mode driver.Mode, owner string, holder driver.Holder, tokenStep, ttl int64) int64 {
	s := l.Of(owner)
	if s == nil {
		l.row.Token += tokenStep
		l.row.Since = l.row.Now
		s = l.Lock.Admit(mode, Share{Owner: owner, Token: l.row.Token, Since: l.row.Now, Holder: holder})
		if mode == (driver.Mode{}) {
			l.row.Owner, l.row.Holder = owner, holder.Encode()
		}
	}
	s.Extend(l.row.Now, ttl)
	return s.Token
}

// Renew extends a share, and reports whether there is one.
func (l *Lock) Renew(owner string, token, ttl int64) bool {
	s := l.held(owner, token)
	if s != nil {
		s.Extend(l.row.Now, ttl)
	}
	return s != nil
}

// Release ends a share, and reports whether there was one. A token of zero stands for any.
func (l *Lock) Release(owner string, token int64) bool {
	s := l.held(owner, token)
	return s != nil && l.End(s.Token, s.Token)
}

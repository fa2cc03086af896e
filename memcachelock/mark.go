package memcachelock

import (
	"strconv"
	"strings"

	"github.com/dlock-go/dlock/driver"
)

// A lock's value, the mark, is OWNER:TOKEN:HOLDER. The token is zero until the lock
// was renewed: it is made of what memcached says when it has stored the item.

func markOf(owner driver.Owner, token uint64, holder driver.Holder) string {
	return owner.Hex() + ":" + strconv.FormatUint(token, 10) + ":" + holder.Encode()
}

// found is an item that is there.
type found struct {
	mark string
	cas  uint64
	left int64 // seconds until it expires; negative if it does not
}

// found is the item that the answer is, or nil.
func (a *answer) found() *found {
	if !a.done {
		return nil
	}
	return &found{mark: a.value, cas: a.cas, left: a.left}
}

// mine says whether the item is that owner's lock.
func (f *found) mine(owner driver.Owner) bool {
	return strings.HasPrefix(f.mark, owner.Hex()+":")
}

// token returns the token of the lock, zero if another program wrote the item.
func (f *found) token(started uint64) uint64 {
	_, rest, _ := strings.Cut(f.mark, ":")
	text, _, ok := strings.Cut(rest, ":")
	token, err := strconv.ParseUint(text, 10, 64)
	switch {
	case !ok || err != nil:
		return 0
	case token == 0:
		return started + f.cas
	}
	return token
}

func (f *found) holder() driver.Holder {
	parts := strings.SplitN(f.mark, ":", 3)
	if len(parts) != 3 {
		return driver.Holder{}
	}
	return driver.DecodeHolder(parts[2])
}

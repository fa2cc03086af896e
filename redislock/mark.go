package redislock

import (
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/dlock-go/dlock/driver"
)

// A mark is how a holder is written into the lock: OWNER:TOKEN:HOLDER. It is the
// ID of Redisson's protocol and the value of the plain one; neither looks into
// it.

// ownerPrefix is the beginning of every mark of an owner.
func ownerPrefix(o driver.Owner) string { return o.Hex() + ":" }

// markPrefix is the beginning of the mark of a grant.
func markPrefix(o driver.Owner, token uint64) string {
	var buf [32 + 1 + 20 + 1]byte
	b := append(buf[:0], o.Hex()...)
	b = append(b, ':')
	b = strconv.AppendUint(b, token, 10)
	return string(append(b, ':'))
}

// parseMark takes a mark apart. Another program's has no token, and is shown as
// it is.
func parseMark(mark string) (token uint64, holder driver.Holder) {
	owner, rest, ok := strings.Cut(mark, ":")
	if ok && len(owner) == 2*len(driver.Owner{}) {
		digits, text, _ := strings.Cut(rest, ":")
		if token, err := strconv.ParseUint(digits, 10, 64); err == nil && token <= maxToken && strings.HasPrefix(text, "{") {
			return token, driver.DecodeHolder(text)
		}
	}
	return 0, driver.Holder{Note: mark}
}

// holderText is an encoded holder.
type holderText struct {
	holder driver.Holder
	text   string
}

// holderCache remembers the last holder, which is nearly always the next one too.
type holderCache struct{ last atomic.Pointer[holderText] }

func (c *holderCache) encode(h driver.Holder) *holderText {
	if last := c.last.Load(); last != nil && last.holder == h {
		return last
	}
	next := &holderText{h, h.Encode()}
	c.last.Store(next)
	return next
}

package redislock

import (
	"strconv"
	"strings"

	"github.com/dlock-go/dlock/driver"
)

// placeOf returns the ID of the request in the queue.
func placeOf(req *driver.Request) string {
	switch {
	case req.Mode.Limit > 0:
		return req.Owner.Hex() + "p"
	case req.Mode.Shared:
		return req.Owner.Hex() + "r"
	}
	return req.Owner.Hex()
}

// modeText returns the mode as the lock's field "mode" has it.
func modeText(m driver.Mode) string {
	switch {
	case m.Limit > 0:
		return strconv.Itoa(m.Limit)
	case m.Shared:
		return "read"
	}
	return "write"
}

// parseMode is the reverse of modeText.
func parseMode(text string) driver.Mode {
	limit, _ := strconv.Atoi(text)
	return driver.Mode{Shared: text == "read", Limit: limit}
}

// A holder value is what a lock stores about its holder: OWNER:TOKEN:HOLDER. It is the ID of
// Redisson's protocol and the string of the plain one. Other programs do not parse it.

// ownerPrefix begins every holder value of an owner.
func ownerPrefix(o driver.Owner) string { return o.Hex() + ":" }

// prefixOf begins the holder value of a grant. Without a token it begins every one of the owner.
func (s *Store) prefixOf(grant driver.Grant) string {
	if grant.Token == 0 {
		return ownerPrefix(grant.Owner)
	}
	return grantPrefix(grant.Owner, s.lastToken(grant))
}

// grantPrefix begins the holder value of a grant: only the holder's description is missing.
func grantPrefix(o driver.Owner, token uint64) string {
	var buf [32 + 1 + 20 + 1]byte
	b := append(buf[:0], o.Hex()...)
	b = append(b, ':')
	b = strconv.AppendUint(b, token, 10)
	return string(append(b, ':'))
}

// parseHolderValue returns the first token of the grant, and the holder. A value that another program wrote has no
// token, and becomes the holder's note. In the plain protocol it is that program's secret, and
// the holder stays empty.
func (s *Store) parseHolderValue(value string) (token uint64, holder driver.Holder) {
	owner, rest, ok := strings.Cut(value, ":")
	if ok && len(owner) == 2*len(driver.Owner{}) {
		digits, text, _ := strings.Cut(rest, ":")
		if last, err := strconv.ParseUint(digits, 10, 64); err == nil && last >= s.step && last <= maxToken && strings.HasPrefix(text, "{") {
			return last - s.step + 1, driver.DecodeHolder(text)
		}
	}
	if s.protocol == Plain {
		return 0, driver.Holder{}
	}
	return 0, driver.Holder{Note: value}
}

package zklock

import (
	"fmt"
	"net/url"
	"strings"
	"unicode/utf8"
)

// escape returns the segment of a path for a lock's name. Different names have different
// segments, and the segment of most names is the name itself.
func escape(name string, atTop bool) string {
	switch {
	case name == "." || name == "..":
		return "%2E" + name[1:]
	case atTop && name == "zookeeper": // which is ZooKeeper's own
		return "%7A" + name[1:]
	case !strings.ContainsFunc(name, mustEscape):
		return name
	}
	var b strings.Builder
	for _, r := range name {
		if mustEscape(r) {
			b.WriteString(strings.ReplaceAll(fmt.Sprintf(" % X", string(r)), " ", "%"))
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// mustEscape reports whether a character has a meaning in paths or segments, or is rejected
// by ZooKeeper. ZooKeeper counts in units of UTF-16: characters beyond the first 65,536 are
// surrogates to it.
func mustEscape(r rune) bool {
	return r == '/' || r == '%' || r < ' ' || r >= 0x7f && r <= 0x9f || r >= 0xd800 && r <= 0xf8ff || r >= 0xfff0
}

// unescape is the opposite of escape. It reports whether the segment is that of a lock.
func unescape(segment string, atTop bool) (string, bool) {
	name, err := url.PathUnescape(segment)
	return name, err == nil && utf8.ValidString(name) && escape(name, atTop) == segment
}

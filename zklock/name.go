package zklock

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

const hexDigits = "0123456789ABCDEF"

// escape makes a segment of a path of a lock's name. Different names have different
// segments, and most names are their own.
func escape(name string, atTop bool) string {
	if name == "." || name == ".." || atTop && name == "zookeeper" { // which is ZooKeeper's own
		return escaped(name[:1]) + name[1:]
	}
	if !strings.ContainsFunc(name, refused) {
		return name
	}
	var b strings.Builder
	for _, r := range name {
		if refused(r) {
			b.WriteString(escaped(string(r)))
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// refused are the characters that are written as their bytes: those with a meaning
// in paths or here, and those that ZooKeeper does not take. It counts in units of
// UTF-16, so that all beyond the first 65,536 are surrogates to it.
func refused(r rune) bool {
	return r == '/' || r == '%' || r < ' ' || r >= 0x7f && r <= 0x9f || r >= 0xd800 && r <= 0xf8ff || r >= 0xfff0
}

func escaped(text string) string {
	var b strings.Builder
	for i := range len(text) {
		b.WriteByte('%')
		b.WriteByte(hexDigits[text[i]>>4])
		b.WriteByte(hexDigits[text[i]&15])
	}
	return b.String()
}

// unescape is the opposite of escape. It returns false for a segment that is no
// lock's.
func unescape(segment string, atTop bool) (string, bool) {
	name := segment
	if strings.Contains(segment, "%") {
		var b strings.Builder
		for i := 0; i < len(segment); i++ {
			if segment[i] != '%' {
				b.WriteByte(segment[i])
				continue
			}
			if i+2 >= len(segment) {
				return "", false
			}
			var c byte
			if _, err := fmt.Sscanf(segment[i+1:i+3], "%02X", &c); err != nil {
				return "", false
			}
			b.WriteByte(c)
			i += 2
		}
		name = b.String()
	}
	return name, utf8.ValidString(name) && escape(name, atTop) == segment
}

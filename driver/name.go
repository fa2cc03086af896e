package driver

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxNameBytes is the length of the longest legal name.
const MaxNameBytes = 255

// CheckName returns an error that wraps [ErrBadName] unless name is 1 to 255 bytes
// of UTF-8 without control characters. The rule is the same for every store, and
// dlock applies it before it calls a store.
//
// Names are compared byte by byte. A store escapes or hashes names that it cannot
// keep as they are. Two names never collide, and a name is never the parent of
// another.
func CheckName(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("%w: it is empty", ErrBadName)
	case len(name) > MaxNameBytes:
		return fmt.Errorf("%w: it has %d bytes, the limit is %d", ErrBadName, len(name), MaxNameBytes)
	}
	for i, r := range name {
		switch {
		case r == utf8.RuneError && !strings.HasPrefix(name[i:], string(utf8.RuneError)):
			return fmt.Errorf("%w: %q is not UTF-8 at byte %d", ErrBadName, name, i)
		case unicode.IsControl(r):
			return fmt.Errorf("%w: %q has a control character at byte %d", ErrBadName, name, i)
		}
	}
	return nil
}

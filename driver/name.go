package driver

import (
	"fmt"
	"unicode"
	"unicode/utf8"
)

// MaxNameBytes is the length of the longest legal name.
const MaxNameBytes = 255

// CheckName says whether name is legal, which is the same for every store: 1
// to 255 bytes of UTF-8 without control characters. dlock checks before it
// calls a store; the error wraps [ErrBadName].
//
// Names are compared byte by byte. A store escapes or hashes what it cannot
// hold; two names never collide, and a name is never the parent of another.
func CheckName(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("%w: it is empty", ErrBadName)
	case len(name) > MaxNameBytes:
		return fmt.Errorf("%w: it has %d bytes, the limit is %d", ErrBadName, len(name), MaxNameBytes)
	}
	for i := 0; i < len(name); {
		if c := name[i]; c < utf8.RuneSelf {
			if c < ' ' || c == 0x7f {
				return fmt.Errorf("%w: %q has a control character at byte %d", ErrBadName, name, i)
			}
			i++
			continue
		}
		r, size := utf8.DecodeRuneInString(name[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			return fmt.Errorf("%w: %q is not UTF-8 at byte %d", ErrBadName, name, i)
		case unicode.IsControl(r):
			return fmt.Errorf("%w: %q has a control character at byte %d", ErrBadName, name, i)
		}
		i += size
	}
	return nil
}

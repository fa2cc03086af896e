package driver_test

import (
	"errors"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/dlock-go/dlock/driver"
)

func TestCheckName(t *testing.T) {
	for name, legal := range map[string]bool{
		"":                            false,
		"a":                           true,
		"orders/42":                   true,
		" ":                           true,
		"..":                          true,
		"锁":                           true,
		"\u00a0":                      true, // a space, not a control character
		strings.Repeat("x", 255):      true,
		strings.Repeat("x", 256):      false,
		strings.Repeat("锁", 85):       true, // 255 bytes
		strings.Repeat("锁", 85) + "x": false,
		"a\tb":                        false,
		"a\x00":                       false,
		"\x7f":                        false,
		"\u0085":                      false, // a control character beyond ASCII
		"caf\xe9":                     false, // Latin-1
		"\xff":                        false,
		"\ufffd":                      true, // the replacement character itself is legal
	} {
		err := driver.CheckName(name)
		if legal && err != nil {
			t.Errorf("CheckName(%q) = %v; want nil", name, err)
		}
		if !legal && !errors.Is(err, driver.ErrBadName) {
			t.Errorf("CheckName(%q) = %v; want ErrBadName", name, err)
		}
	}
}

func FuzzCheckName(f *testing.F) {
	for _, seed := range []string{"", "a", "a\n", "\xff", "锁", "\u0085"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, name string) {
		want := name != "" && len(name) <= 255 && utf8.ValidString(name) && !strings.ContainsFunc(name, unicode.IsControl)
		if got := driver.CheckName(name) == nil; got != want {
			t.Errorf("CheckName(%q) says %v; want %v", name, got, want)
		}
	})
}

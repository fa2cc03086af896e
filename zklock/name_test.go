package zklock

import (
	"strings"
	"testing"

	"github.com/dlock-go/dlock/driver"
)

func TestEscape(t *testing.T) {
	for name, want := range map[string]string{
		"orders":       "orders",
		"orders/42":    "orders%2F42",
		"a%2Fb":        "a%252Fb",
		".":            "%2E",
		"..":           "%2E.",
		"...":          "...",
		".a":           ".a",
		"zookeeper":    "%7Aookeeper",
		"lock-":        "lock-",
		"日本 é":         "日本 é",
		"🔒":            "%F0%9F%94%92",
		"\ufffd\ue000": "%EF%BF%BD%EE%80%80",
	} {
		if got := escape(name, true); got != want {
			t.Errorf("escape(%q) = %q; want %q", name, got, want)
		}
	}
	if got := escape("zookeeper", false); got != "zookeeper" {
		t.Errorf("escape(zookeeper) = %q below a root; want the name itself", got)
	}
	for _, segment := range []string{"%", "%2", "%2f", "%41", "%zz", "zookeeper", ".", "%FF"} {
		if name, ok := unescape(segment, true); ok {
			t.Errorf("unescape(%q) = %q; want no lock", segment, name)
		}
	}
}

func FuzzEscape(f *testing.F) {
	f.Add("a/b", true)
	f.Add("..", false)
	f.Fuzz(func(t *testing.T, name string, atTop bool) {
		if driver.CheckName(name) != nil {
			return
		}
		segment := escape(name, atTop)
		if back, ok := unescape(segment, atTop); !ok || back != name {
			t.Errorf("escape(%q) = %q, and unescape returns %q, %v", name, segment, back, ok)
		}
		if strings.ContainsFunc(strings.ReplaceAll(segment, "%", ""), mustEscape) || segment == "." || segment == ".." {
			t.Errorf("escape(%q) = %q, which ZooKeeper rejects", name, segment)
		}
	})
}

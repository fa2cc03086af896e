package redislock

import (
	"testing"

	"github.com/dlock-go/dlock/driver"
)

func TestMarks(t *testing.T) {
	owner := driver.NewOwner()
	holder := driver.Holder{Host: "web-1", PID: 7, Program: "billing", Note: `a:b"{}`}
	mark := markPrefix(owner, 1794800000000001) + holder.Encode()
	if token, h := parseMark(mark); token != 1794800000000001 || h != holder {
		t.Errorf("%q is read as token %d of %+v", mark, token, h)
	}
	for _, foreign := range []string{"", "x", "8743c9c0-612d-420f-9b28-14d22a1b56c7:1", "0123456789abcdef0123456789abcdef", "0123456789abcdef0123456789abcdef:12:no"} {
		if token, h := parseMark(foreign); token != 0 || h.Note != foreign {
			t.Errorf("%q, which dlock did not write, is read as token %d of %+v", foreign, token, h)
		}
	}
	s := &Store{protocol: Plain}
	if _, h := s.parse("b64secret=="); h != (driver.Holder{}) {
		t.Errorf("another program's secret is shown: %+v", h)
	}
}

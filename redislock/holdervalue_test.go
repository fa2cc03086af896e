package redislock

import (
	"testing"

	"github.com/dlock-go/dlock/driver"
)

func TestParseHolderValue(t *testing.T) {
	owner := driver.NewOwner()
	holder := driver.Holder{Host: "web-1", PID: 7, Program: "billing", Note: `a:b"{}`}
	value := grantPrefix(owner, 1794800000000001) + holder.Encode()
	redisson, plain := &Store{protocol: Redisson}, &Store{protocol: Plain}
	for _, s := range []*Store{redisson, plain} {
		if token, h := s.parseHolderValue(value); token != 1794800000000001 || h != holder {
			t.Errorf("%v: %q is read as token %d of %+v", s.protocol, value, token, h)
		}
	}
	for _, foreign := range []string{
		"", "x", "8743c9c0-612d-420f-9b28-14d22a1b56c7:1", "0123456789abcdef0123456789abcdef",
		"0123456789abcdef0123456789abcdef:12:no", "b64secret==",
	} {
		if token, h := redisson.parseHolderValue(foreign); token != 0 || h.Note != foreign {
			t.Errorf("%q, which dlock did not write, is read as token %d of %+v", foreign, token, h)
		}
		if token, h := plain.parseHolderValue(foreign); token != 0 || h != (driver.Holder{}) {
			t.Errorf("the secret %q of another program is shown: token %d of %+v", foreign, token, h)
		}
	}
}

package driver_test

import (
	"strings"
	"testing"

	"github.com/dlock-go/dlock/driver"
)

func TestHolderSurvivesEncoding(t *testing.T) {
	for _, h := range []driver.Holder{
		{},
		{Host: "web-1", PID: 4711, Program: "billing", Note: "cron\n\"quoted\" 锁"},
	} {
		if got := driver.DecodeHolder(h.Encode()); got != h {
			t.Errorf("%+v was decoded as %+v", h, got)
		}
	}
	if got := driver.DecodeHolder(""); got != (driver.Holder{}) {
		t.Errorf("an empty text was decoded as %+v", got)
	}
	if got := driver.DecodeHolder("8743c9c0:1"); got.Note != "8743c9c0:1" {
		t.Errorf("another program's text was decoded as %+v", got)
	}
}

func TestHolderString(t *testing.T) {
	for want, h := range map[string]driver.Holder{
		`billing (pid 7) on web-1`:       {Host: "web-1", PID: 7, Program: "billing"},
		`billing (pid 7) on web-1: "hi"`: {Host: "web-1", PID: 7, Program: "billing", Note: "hi"},
		`pid 7: "\x1b[31m"`:              {PID: 7, Note: "\x1b[31m"}, // no escape reaches a terminal
		`"\x1b[0m" (pid 7) on "a\nb"`:    {PID: 7, Program: "\x1b[0m", Host: "a\nb"},
		`another program: "8743c9c0:1"`:  {Note: "8743c9c0:1"},

		`another program: "` + strings.Repeat("é", 500) + `…"`: {Note: strings.Repeat("é", 1<<19)}, // of another program
		`pid 7: "x` + strings.Repeat("é", 499) + `…"`:          {PID: 7, Note: "x" + strings.Repeat("é", 500)},
	} {
		if got := h.String(); got != want {
			t.Errorf("%+v prints as %s; want %s", h, got, want)
		}
	}
}

package inwords

import (
	"testing"
	"time"
)

func TestDuration(t *testing.T) {
	for d, want := range map[time.Duration]string{
		30 * 24 * time.Hour:            "30 days",
		30*24*time.Hour - time.Minute:  "almost 30 days",
		24 * time.Hour:                 "1 day",
		time.Second:                    "1 second",
		2 * time.Second:                "2 seconds",
		1500 * time.Millisecond:        "1.5 seconds",
		10 * time.Millisecond:          "10 milliseconds",
		200 * time.Microsecond:         "200µs",
		time.Hour + 30*time.Minute:     "1.5 hours",
		time.Second - time.Millisecond: "almost 1 second",
	} {
		if got := Duration(d); got != want {
			t.Errorf("%v in words is %q; want %q", d, got, want)
		}
	}
}

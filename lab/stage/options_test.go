package stage

import (
	"flag"
	"testing"
	"time"
)

// TestDurationsTakeSeconds: a duration on the command line is in seconds if it has no unit.
func TestDurationsTakeSeconds(t *testing.T) {
	t.Parallel()
	var o Options
	flags := flag.NewFlagSet("", flag.ContinueOnError)
	o.Flags(flags)
	if err := flags.Parse([]string{"--think", "1", "--ttl", "1.5"}); err != nil || o.Think != time.Second || o.TTL != 1500*time.Millisecond {
		t.Errorf("%v, %v, %v; want 1 s and 1.5 s", o.Think, o.TTL, err)
	}
	if err := flags.Parse([]string{"--think", "soon"}); err == nil {
		t.Error("a word was taken for a duration")
	}
}

func TestNoPasswordIsLeft(t *testing.T) {
	t.Parallel()
	o := Options{Store: "redis://u:s%40cret@h/0", Database: "postgres://h/db?user=u&password=hid%26den"}
	const text = "redis://u:s%40cret@h/0 s@cret password=hid%26den hid&den user"
	const want = "redis://u:xxxxx@h/0 xxxxx password=xxxxx xxxxx user"
	if got := o.Clean(text); got != want {
		t.Errorf("%s", got)
	}
}

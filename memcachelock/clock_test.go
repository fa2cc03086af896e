package memcachelock

import (
	"testing"
	"time"
)

func TestServerClockKeepsTheLatestReading(t *testing.T) {
	const said = 1_800_000_000
	var k serverClock
	now := time.Now()
	k.observe(said, now)
	later := now.Add(1700 * time.Millisecond)
	if end := k.expiry(later, 3*time.Second); end != said+8 { // 1.7 and 3 and 2.5 are 7.2
		t.Errorf("the expiry is %d s after the reading; want 8", end-said)
	}
	k.observe(said-10, now)
	if end := k.expiry(now, 0); end != said+3 {
		t.Errorf("after an earlier reading the expiry is %d s after the first; want 3", end-said)
	}
	k.observe(said+100, now)
	if end := k.expiry(now, 0); end != said+103 {
		t.Errorf("after a later reading the expiry is %d s after the first; want 103", end-said)
	}
}

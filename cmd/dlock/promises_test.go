package main

import (
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// What a store does not promise as it is configured comes first, and names the
// finding that says why.
func TestPromisesAsConfigured(t *testing.T) {
	server := driver.Traits{Store: "redis", Fencing: driver.FencingClockBound, Fair: true, SurvivesRestart: true, SurvivesFailover: true}
	good := promises(server, []driver.Finding{{Check: "persistence", Level: driver.LevelOK, Message: "fine"}})
	if text := strings.Join(good, "\n"); !strings.Contains(text, "Restart: locks and tokens survive") ||
		!strings.Contains(text, "Failover: locks and tokens survive") || !strings.Contains(text, "on all machines") || strings.Contains(text, "see ") {
		t.Errorf("promises of a store without findings:\n%s", text)
	}
	bad := promises(server, []driver.Finding{
		{Check: "persistence", Level: driver.LevelWarning, Breaks: driver.PromiseRestart},
		{Check: "eviction", Level: driver.LevelWarning, Breaks: driver.PromiseExclusion},
	})
	if want := "Exclusion: two may hold a lock at once (see eviction below)."; bad[0] != want {
		t.Errorf("the first promise is %q; want %q", bad[0], want)
	}
	if want := "Restart: a crash of the store can forget locks, and two may then hold one (see persistence below)."; bad[1] != want {
		t.Errorf("the second promise is %q; want %q", bad[1], want)
	}
	file := strings.Join(promises(driver.Traits{Store: "sqlite", Fair: true, OneMachine: true, SurvivesRestart: true}, nil), "\n")
	if !strings.Contains(file, "Reach: processes of this machine only") || strings.Contains(file, "all machines") || strings.Contains(file, "Failover") {
		t.Errorf("promises of a file on this machine:\n%s", file)
	}
	for _, c := range []struct {
		traits driver.Traits
		want   string
	}{
		{driver.Traits{Granularity: 5 * time.Second, MinTTL: time.Second}, "TTL: at least 1 second; a lock expires up to 5 seconds late."},
		{driver.Traits{}, "Failover: let no other server take over"},
		{driver.Traits{}, "paused for longer than its TTL loses the lock"},
		{driver.Traits{SessionBound: true, SurvivesRestart: true}, "paused for longer than its TTL loses the lock"},
		{driver.Traits{SessionBound: true}, "paused keeps the lock for as long as its connection lives"},
	} {
		if text := strings.Join(promises(c.traits, nil), "\n"); !strings.Contains(text, c.want) {
			t.Errorf("promises of %+v do not contain %q:\n%s", c.traits, c.want, text)
		}
	}
}

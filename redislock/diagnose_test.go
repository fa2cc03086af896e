package redislock

import (
	"strings"
	"testing"

	"github.com/dlock-go/dlock/driver"
)

func TestOldVersionsAreReported(t *testing.T) {
	for _, c := range []struct {
		redis, valkey string
		level         driver.Level
		says          string
	}{
		{"7.0.15", "", driver.LevelOK, "Redis 7.0.15"},
		{"8.2.1", "", driver.LevelOK, "Redis 8.2.1"},
		{"10.0.0", "", driver.LevelOK, "Redis 10.0.0"},
		{"7.2.4", "8.1.0", driver.LevelOK, "Valkey 8.1.0"},
		{"6.2.14", "", driver.LevelWarning, "7.0 or newer is recommended"},
		{"6.0.20", "", driver.LevelProblem, "6.2 is needed"},
		{"5.9.9", "", driver.LevelProblem, "6.2 is needed"},
		{"", "", driver.LevelProblem, "6.2 is needed"},
	} {
		f := checkVersion(map[string]string{"redis_version": c.redis, "valkey_version": c.valkey})
		if f.Level != c.level || !strings.Contains(f.Message, c.says) {
			t.Errorf("Redis %q, Valkey %q: %s: %s; want %s and %q", c.redis, c.valkey, f.Level, f.Message, c.level, c.says)
		}
	}
}

package memcachelock

import (
	"testing"

	"github.com/dlock-go/dlock/driver"
)

func TestVersionIsChecked(t *testing.T) {
	for _, c := range []struct {
		version, automove string
		want              driver.Level
	}{
		{"1.5.22", "0", driver.LevelProblem},
		{"unknown", "0", driver.LevelProblem},
		{"1.6.0", "1", driver.LevelWarning},
		{"1.6.18", "1", driver.LevelWarning},
		{"1.6.18", "0", driver.LevelOK},
		{"1.6.24", "1", driver.LevelOK},
		{"1.10.1", "2", driver.LevelOK},
		{"2.0", "1", driver.LevelOK},
	} {
		if f := checkVersion(c.version, c.automove); f.Level != c.want {
			t.Errorf("version %s with slab_automove %s: %s, %s; want %s", c.version, c.automove, f.Level, f.Message, c.want)
		}
	}
}

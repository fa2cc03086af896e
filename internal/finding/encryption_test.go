package finding

import (
	"testing"

	"github.com/dlock-go/dlock/driver"
)

func TestPlaintextIsAWarningOutsideOfThisMachine(t *testing.T) {
	for address, want := range map[string]driver.Level{
		"127.0.0.1:6379": driver.LevelOK, "[::1]:2379": driver.LevelOK, "::1": driver.LevelOK, "127.1.2.3": driver.LevelOK,
		"localhost:11211": driver.LevelOK, "localhost": driver.LevelOK, "/run/redis.sock": driver.LevelOK, "unix:/run/x": driver.LevelOK,
		"192.0.2.1:6379": driver.LevelWarning, "192.0.2.1": driver.LevelWarning, "redis:6379": driver.LevelWarning,
		"[2001:db8::1]:2379": driver.LevelWarning, "2001:db8::1": driver.LevelWarning, "": driver.LevelWarning,
		"localhost.example.org:6379": driver.LevelWarning,
	} {
		if got := Encryption(false, address, "Do it."); got.Level != want {
			t.Errorf("%q: %+v; want %s", address, got, want)
		}
		if got := Encryption(true, address, "Do it."); got.Level != driver.LevelOK {
			t.Errorf("%q, encrypted: %+v", address, got)
		}
	}
}

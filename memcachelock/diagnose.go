package memcachelock

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/inwords"
)

// Diagnose implements driver.Diagnoser.
func (s *Store) Diagnose(ctx context.Context) ([]driver.Finding, error) {
	var stats, settings map[string]string
	err := s.call(ctx, nil, func(c *conn) (err error) {
		if stats, err = c.stats(""); err != nil {
			return err
		}
		settings, err = c.stats("settings")
		return err
	})
	if err != nil {
		return nil, err
	}
	return []driver.Finding{
		checkVersion(stats["version"]),
		checkCAS(settings["cas_enabled"]),
		checkPersistence(s.restartDelay),
		checkEviction(stats, settings),
		checkClock(stats["time"], time.Now()),
	}, nil
}

func checkVersion(version string) driver.Finding {
	f := driver.Finding{Check: "version", Level: driver.LevelOK, Message: "memcached " + version}
	var major, minor int
	if n, _ := fmt.Sscanf(version, "%d.%d", &major, &minor); n < 2 || major < 1 || major == 1 && minor < 6 {
		f.Level = driver.LevelProblem
		f.Message += " is too old: 1.6 or newer is needed, for the meta commands."
	}
	return f
}

func checkCAS(enabled string) driver.Finding {
	if enabled == "no" {
		return driver.Finding{Check: "cas", Level: driver.LevelProblem, Breaks: driver.PromiseExclusion, Message: "Started with -C: items cannot be compared, and no lock is safe. Remove -C."}
	}
	return driver.Finding{Check: "cas", Level: driver.LevelOK, Message: "Items can be compared before they are changed."}
}

func checkPersistence(delay time.Duration) driver.Finding {
	f := driver.Finding{Check: "persistence", Level: driver.LevelWarning, Message: "memcached keeps everything in memory, and a restart frees all locks. " +
		"After a restart no lock is granted for a TTL, until the holders from before have stopped to trust theirs, if all programs use the same TTL for a lock. " +
		"Check the fencing token where two holders at once do harm."}
	if delay < 0 {
		f.Message = "memcached keeps everything in memory, and RestartDelay is negative: a restart frees locks that their holders still trust. " +
			"Check the fencing token where two holders at once do harm."
	}
	return f
}

func checkEviction(stats, settings map[string]string) driver.Finding {
	f := driver.Finding{Check: "eviction", Level: driver.LevelOK, Message: "The server refuses to store when it is full (-M), and evicts no lock. No lock can be renewed while it is full."}
	if settings["evictions"] != "off" {
		f.Level, f.Breaks = driver.LevelWarning, driver.PromiseExclusion
		f.Message = fmt.Sprintf("Any lock can be evicted when the memory is full (items evicted so far: %s). "+
			"Run a separate memcached for locks, with -M.", stats["evictions"])
	}
	return f
}

// maxSkew is a difference of two clocks that does no harm.
const maxSkew = 5 * time.Second

func checkClock(serverTime string, now time.Time) driver.Finding {
	seconds, err := strconv.ParseInt(serverTime, 10, 64)
	if err != nil {
		return driver.Finding{Check: "clock", Level: driver.LevelWarning, Message: "The server does not report its time."}
	}
	skew := now.Sub(time.Unix(seconds, 0)).Round(time.Second)
	f := driver.Finding{Check: "clock", Level: driver.LevelOK, Message: "The server's clock agrees with this machine's."}
	if skew.Abs() > maxSkew {
		f.Level = driver.LevelWarning
		f.Message = "The server's clock differs from this machine's by " + inwords.Duration(skew.Abs()) + ". Tokens rise across a restart of the server only if its clock is not set back."
	}
	return f
}

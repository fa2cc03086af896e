package memcachelock

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/finding"
	"github.com/dlock-go/dlock/internal/inwords"
)

// Diagnose implements driver.Diagnoser.
func (s *Store) Diagnose(ctx context.Context) ([]driver.Finding, error) {
	var stats, settings map[string]string
	err := s.call(ctx, func(c *conn) (err error) {
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
		checkVersion(stats["version"], settings["slab_automove"]),
		checkCAS(settings["cas_enabled"]),
		checkPersistence(s.restartDelay),
		checkEviction(stats, settings),
		checkClock(stats["time"], time.Now()),
		finding.Encryption(false, s.pool.addr, "The store has no TLS for memcached: use a network that only trusted machines are in."),
	}, nil
}

func checkVersion(version, automove string) driver.Finding {
	const check = "version"
	var v [3]int
	n, _ := fmt.Sscanf(version, "%d.%d.%d", &v[0], &v[1], &v[2])
	switch {
	case n < 2 || slices.Compare(v[:], []int{1, 6}) < 0:
		return finding.Problem(check, "memcached %s is too old: 1.6 or newer is needed, for the meta commands.", version)
	case slices.Compare(v[:], []int{1, 6, 24}) < 0 && automove != "0":
		return finding.Warning(check, "memcached %s gives an item that it moves in its memory another number: until the next renewal of such a lock "+
			"its holder is shown with a larger token than it has. Use 1.6.24 or newer, or start the server with -o slab_automove=0.", version)
	}
	return finding.OK(check, "memcached %s", version)
}

func checkCAS(enabled string) driver.Finding {
	if enabled == "no" {
		return finding.Breaking(driver.PromiseExclusion,
			finding.Problem("cas", "Started with -C: items cannot be compared, and no lock is safe. Remove -C."))
	}
	return finding.OK("cas", "Items can be compared before they are changed.")
}

func checkPersistence(delay time.Duration) driver.Finding {
	effect := "a restart frees all locks. After a restart no lock is granted for a TTL, until the holders from before " +
		"no longer trust theirs, if all programs use the same TTL for a lock."
	if delay < 0 {
		effect = "RestartDelay is negative: a restart frees locks that their holders still trust."
	}
	return finding.Warning("persistence",
		"memcached keeps everything in memory, and %s Check the fencing token where two holders at once do harm.", effect)
}

func checkEviction(stats, settings map[string]string) driver.Finding {
	const check = "eviction"
	if settings["evictions"] != "off" {
		return finding.Breaking(driver.PromiseExclusion, finding.Warning(check, "Any lock can be evicted when the memory is full "+
			"(items evicted so far: %s). Run a separate memcached for locks, with -M.", stats["evictions"]))
	}
	return finding.OK(check, "The server refuses to store when it is full (-M), and evicts no lock. No lock can be renewed while it is full.")
}

// maxSkew is a difference of two clocks that does no harm.
const maxSkew = 5 * time.Second

func checkClock(serverTime string, now time.Time) driver.Finding {
	const check = "clock"
	seconds, err := strconv.ParseInt(serverTime, 10, 64)
	if err != nil {
		return finding.Warning(check, "The server does not report its time.")
	}
	skew := now.Sub(time.Unix(seconds, 0)).Round(time.Second)
	if skew.Abs() > maxSkew {
		return finding.Warning(check, "The server's clock differs from this machine's by %s. "+
			"Tokens rise across a restart of the server only if its clock is not set back.", inwords.Duration(skew.Abs()))
	}
	return finding.OK(check, "The server's clock agrees with this machine's.")
}

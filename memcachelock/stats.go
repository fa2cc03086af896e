package memcachelock

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

const (
	// promptAnswer is how fast the answer to a question for the time has to come. A slower one
	// may have been given long ago: then the time is asked for again, up to maxTries times.
	promptAnswer = 500 * time.Millisecond

	// maxUptimeError is how much older than it is a server may say it is: it begins with two
	// seconds, and counts the one in which it started.
	maxUptimeError = 3 * time.Second
)

// askTime asks the server for its time and for how long it has been running, in seconds.
func (c *conn) askTime() (now, uptime int64, err error) {
	for try := 1; ; try++ {
		asked := time.Now()
		stats, err := c.stats("")
		if err != nil {
			return 0, 0, err
		}
		now, err = strconv.ParseInt(stats["time"], 10, 64)
		uptime, err2 := strconv.ParseInt(stats["uptime"], 10, 64)
		if err != nil || err2 != nil || now-uptime <= int64(maxTTL/time.Second) || uptime < 0 {
			return 0, 0, fmt.Errorf("%w: no time in its statistics", errNotMemcached)
		}
		if time.Since(asked) < promptAnswer || try == maxTries {
			c.clock.observe(now, asked)
			return now, uptime, nil
		}
	}
}

// stats returns the server's statistics: the general ones, or those of a kind.
func (c *conn) stats(kind string) (map[string]string, error) {
	_, _ = c.out.WriteString(strings.TrimRight("stats "+kind, " ") + "\r\n") // Flush returns an error
	if err := c.out.Flush(); err != nil {
		return nil, err
	}
	stats := make(map[string]string)
	for {
		line, err := c.readLine()
		if err != nil {
			return nil, err
		}
		fields := strings.SplitN(string(line), " ", 3)
		switch {
		case fields[0] == "END":
			return stats, nil
		case fields[0] != "STAT" || len(fields) < 2:
			return nil, fmt.Errorf("%w: %q", errNotMemcached, line)
		case len(fields) == 3:
			stats[fields[1]] = fields[2]
		}
	}
}

// restartWait returns for how long the server must not grant a lock yet, because a holder from
// before its start may still trust it.
func (c *conn) restartWait(delay, ttl time.Duration) time.Duration {
	switch {
	case delay < 0:
		return 0
	case delay == 0:
		delay = ttl
	}
	return max(0, delay+maxUptimeError-c.uptime-time.Since(c.dialed))
}

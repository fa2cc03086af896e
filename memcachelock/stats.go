package memcachelock

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// askTime asks the server for its time, and for how long it is running.
func (c *conn) askTime() (now, uptime int64, err error) {
	for try := 1; ; try++ {
		asked := time.Now()
		stats, err := c.stats("")
		if err != nil {
			return 0, 0, err
		}
		if now, uptime, err = times(stats); err != nil {
			return 0, 0, err
		}
		if time.Since(asked) < prompt || try == tries {
			c.clock.hear(now, asked)
			return now, uptime, nil
		}
	}
}

// stats asks for the server's figures: all, or those of a kind.
func (c *conn) stats(kind string) (map[string]string, error) {
	c.write([]byte(strings.TrimRight("stats "+kind, " ") + "\r\n"))
	if err := c.flush(); err != nil {
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
			return nil, fmt.Errorf("%w: %q", errAnswer, line)
		case len(fields) == 3:
			stats[fields[1]] = fields[2]
		}
	}
}

// times are the server's time, and for how long it is running, in seconds. They are counted
// by one clock, so that their difference is always the same.
func times(stats map[string]string) (now, uptime int64, err error) {
	now, err = strconv.ParseInt(stats["time"], 10, 64)
	uptime, err2 := strconv.ParseInt(stats["uptime"], 10, 64)
	if err != nil || err2 != nil || now-uptime <= int64(maxTTL/time.Second) || uptime < 0 {
		return 0, 0, fmt.Errorf("%w: it does not tell its time", errAnswer)
	}
	return now, uptime, nil
}

// young returns for how long the server is too young to give a lock, zero if it is
// not: who had locks before it started may still believe in them.
func (c *conn) young(delay, ttl time.Duration) time.Duration {
	switch {
	case delay < 0:
		return 0
	case delay == 0:
		delay = ttl
	}
	return max(0, delay+boast-c.uptime-time.Since(c.dialed))
}

// prompt is how fast an answer is that tells the time. When another was given, nobody
// knows: it is asked for again, but not for ever on a slow network.
const prompt = 500 * time.Millisecond

// boast is how much older than it is a server may say to be: it begins at two seconds,
// and counts the one in which it started.
const boast = 3 * time.Second

package memcachelock

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// serverClock is what a connection knows about the clock of its server.
//
// One thread of memcached moves that clock about once a second. After a pause of the whole
// server its other threads may answer before that thread has run. A TTL that they count from
// the late clock ends too soon. So the store tells the server at which second a lock ends, never
// how long it lasts, and uses its own clock between two readings of the server's.
type serverClock struct {
	read time.Time // what the server said
	at   time.Time // when it was asked
}

// maxLag is how much a reading may be behind the true time: the fraction of a second that the
// server does not report, the second until its clock moves, and half a second for a thread that is
// late and for clocks that run at different speeds.
const maxLag = 2*time.Second + 500*time.Millisecond

// when returns what the server's clock shows at a moment, by the best reading.
func (k *serverClock) when(moment time.Time) time.Time { return k.read.Add(moment.Sub(k.at)) }

// expiry returns the second in which a TTL ends that begins at a moment. It is never too early.
func (k *serverClock) expiry(moment time.Time, ttl time.Duration) int64 {
	return k.when(moment).Add(ttl + maxLag + time.Second - 1).Unix()
}

// expiryKeeping is expiry for an item that has left seconds to live: storing it again never ends
// it sooner.
func (k *serverClock) expiryKeeping(left int64, moment time.Time, ttl time.Duration) int64 {
	return max(k.expiry(moment, ttl), k.when(moment).Unix()+left)
}

// observe takes a reading that was asked for at a moment and has just been answered. A reading is
// never ahead of the true time. A reading later than expected shows that the readings before
// were behind, or that this machine was suspended. An earlier one is itself behind.
func (k *serverClock) observe(seconds int64, asked time.Time) {
	read := time.Unix(seconds, 0)
	// The first comparison mostly avoids reading the clock for the second.
	if read.After(k.when(asked)) && read.After(k.when(time.Now())) {
		k.read, k.at = read, asked
	}
}

const (
	// promptAnswer is how fast the answer to a question for the time has to come. A slower one
	// may have been given long ago: then the time is asked for again, up to maxTries times.
	promptAnswer = 500 * time.Millisecond

	// maxUptimeError is by how much a server may overstate its age: it begins with two seconds,
	// and counts the second in which it started.
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
		case strings.HasPrefix(string(line), "ERROR Too many open connections"):
			return nil, errTooManyConnections
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

package memcachelock

import "time"

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
// server does not tell, the second until its clock moves, and half a second for a thread that is
// late and for clocks that run at different speeds.
const maxLag = 2*time.Second + 500*time.Millisecond

// when returns what the server's clock shows at a moment, by the last reading.
func (k *serverClock) when(moment time.Time) time.Time { return k.read.Add(moment.Sub(k.at)) }

// expiry returns the second in which a TTL ends that begins at a moment. It is never too early.
func (k *serverClock) expiry(moment time.Time, ttl time.Duration) int64 {
	return k.when(moment).Add(ttl + maxLag + time.Second - 1).Unix()
}

// expiryKeeping is expiry for an item that has so many seconds left: storing it again never ends
// it sooner.
func (k *serverClock) expiryKeeping(left int64, moment time.Time, ttl time.Duration) int64 {
	return max(k.expiry(moment, ttl), k.when(moment).Unix()+left)
}

// observe takes a reading that was asked for at a moment and has just been answered. The
// server's clock is never ahead. A reading later than expected shows that the readings before
// were behind, or that this machine was suspended. An earlier one is behind itself.
func (k *serverClock) observe(seconds int64, asked time.Time) {
	read := time.Unix(seconds, 0)
	// The first comparison mostly avoids reading the clock for the second.
	if read.After(k.when(asked)) && read.After(k.when(time.Now())) {
		k.read, k.at = read, asked
	}
}

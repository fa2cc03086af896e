package memcachelock

import "time"

// clock is what a connection knows of the server's clock, which one thread of the server
// moves about once a second. When the whole server was stopped for a while and goes on, the
// others may answer before that thread has run, and what lasts from then on, by a clock
// that is late, is over too soon. So the store never tells the server how long a lock
// lasts, but when it ends, and goes by its own clock between two readings.
type clock struct {
	read time.Time // what the server said
	at   time.Time // when it was asked
}

// behind is how much less than the time a reading may be: the part of a second that is not
// told, the second until the clock is moved again, and half of one for a server that
// is late with that, and for two clocks that do not run alike.
const behind = 2*time.Second + 500*time.Millisecond

// when is what the server's clock shows at a moment, by the last reading.
func (k *clock) when(moment time.Time) time.Time { return k.read.Add(moment.Sub(k.at)) }

// end is the second in which something is over that begins at that moment: never too
// early.
func (k *clock) end(moment time.Time, ttl time.Duration) int64 {
	return k.when(moment).Add(ttl + behind + time.Second - 1).Unix()
}

// notBefore is end, or the second in which an item ends that has so many seconds left, if
// that is later: what is stored again never ends sooner, however late it is stored.
func (k *clock) notBefore(left int64, moment time.Time, ttl time.Duration) int64 {
	return max(k.end(moment, ttl), k.when(moment).Unix()+left)
}

// hear takes a reading that was asked for at that moment, and was answered just now. The
// server's clock is never ahead: so a reading that is later than was believed shows that it
// was behind before, or that this machine slept. One that is earlier is behind itself.
func (k *clock) hear(seconds int64, asked time.Time) {
	read := time.Unix(seconds, 0)
	// The first comparison, which alone is not enough, mostly spares another look at a clock.
	if read.After(k.when(asked)) && read.After(k.when(time.Now())) {
		k.read, k.at = read, asked
	}
}

package faults

import (
	"encoding/binary"
	"fmt"
	"time"
)

// binaryTimes is like times, for protocols that send numbers as eight bytes. It
// ignores times in seconds, because unrelated bytes often match them.
func binaryTimes(sent []byte, from, to time.Time) (found []string) {
	const tolerance = 10 * time.Minute
	from, to = from.Add(-tolerance), to.Add(tolerance)
	for i := range max(len(sent)-7, 0) {
		for _, order := range []binary.ByteOrder{binary.LittleEndian, binary.BigEndian} {
			n := int64(order.Uint64(sent[i:]))
			for _, unit := range []time.Duration{time.Millisecond, time.Microsecond, time.Nanosecond} {
				if perSecond := int64(time.Second / unit); n >= from.Unix()*perSecond && n <= to.Unix()*perSecond {
					found = append(found, fmt.Sprintf("%d (%v, in units of %v)", n, order, unit))
				}
			}
		}
	}
	return found
}

package faults

import (
	"encoding/binary"
	"testing"
	"time"
)

func TestTimesAreFoundInBinary(t *testing.T) {
	// Fixed: some times are found in their own bytes twice.
	now := time.Date(2026, time.March, 1, 12, 30, 15, 123456789, time.UTC)
	for _, order := range []binary.AppendByteOrder{binary.LittleEndian, binary.BigEndian} {
		for _, n := range []int64{now.UnixMilli(), now.UnixMicro(), now.UnixNano()} {
			text := append(order.AppendUint64([]byte("SELECT \x00"), uint64(n)), "and more"...)
			if found := binaryTimes(text, now, now); len(found) != 1 {
				t.Errorf("%d as %v: found %q", n, order, found)
			}
			if found := binaryTimes(text, now.Add(time.Hour), now.Add(time.Hour)); len(found) != 0 {
				t.Errorf("%d as %v: found %q an hour later", n, order, found)
			}
		}
	}
	if found := binaryTimes([]byte("short"), now, now); found != nil {
		t.Errorf("found %q", found)
	}
}

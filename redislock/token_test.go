package redislock

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// TestOwnerThatAsksAgainIsNotForgotten: an owner that keeps asking is known for as long as it asks,
// however many others there are.
func TestOwnerThatAsksAgainIsNotForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ttl = time.Second
		var values ownerValues
		asks, left := driver.NewOwner(), driver.NewOwner()
		values.add(left, 7, ttl)
		for i := range uint64(5) {
			values.add(asks, 1+i, ttl)
			<-time.After(ttl)
		}
		for range 1024 {
			values.add(driver.NewOwner(), 9, ttl)
		}
		if got := values.of(asks); got != 1 {
			t.Errorf("the owner that keeps asking has the value %d; want its first one", got)
		}
		if got := values.of(left); got != 0 {
			t.Errorf("the owner that left still has the value %d", got)
		}
	})
}

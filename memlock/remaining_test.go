package memlock_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/memlock"
)

// TestRemainingOfSeveralHolders: a refusal says after which time another attempt is worth it: when
// the first permit expires, or the last shared holder.
func TestRemainingOfSeveralHolders(t *testing.T) {
	for _, test := range []struct {
		name             string
		holders, refused driver.Mode
		want             time.Duration
	}{
		{"permits", driver.Mode{Limit: 3}, driver.Mode{Limit: 3}, time.Second},
		{"shared", driver.Mode{Shared: true}, driver.Mode{}, time.Hour},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memlock.New()
				for _, ttl := range []time.Duration{time.Minute, time.Second, time.Hour} {
					if _, err := store.Acquire(t.Context(), driver.Request{Name: "x", Owner: driver.NewOwner(), TTL: ttl, Mode: test.holders}); err != nil {
						t.Fatal(err)
					}
				}
				_, err := store.Acquire(t.Context(), driver.Request{Name: "x", Owner: driver.NewOwner(), TTL: time.Minute, Mode: test.refused})
				var held *driver.HeldError
				if !errors.As(err, &held) || held.Remaining != test.want {
					t.Errorf("%v; want a HeldError with %v left", err, test.want)
				}
			})
		})
	}
}

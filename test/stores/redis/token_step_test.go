package redis

import (
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/redislock"
	"github.com/dlock-go/dlock/test/harness/servers"
)

// TestRaisedTokenWithinAStep: tokens that were raised to a number that is no multiple of the step are set
// aside, also if the next proposal begins among them.
func TestRaisedTokenWithinAStep(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.Redis, inMemory...)
	for _, protocol := range protocols {
		store, _ := openURL(t, server.URL()+"?protocol="+protocol)
		step := store.Traits().TokenStep
		acquireAndRelease(t, store, protocol) // from then on the counter exists and the clock is known
		grant := acquireOne(t, store, protocol)
		first := (grant.Token + uint64(time.Hour.Microseconds())) / step * step
		raised, err := store.(driver.TokenRaiser).RaiseToken(t.Context(), grant, first+1)
		if err != nil || raised.Token != first+1 {
			t.Fatalf("%s: token %d, %v; want %d", protocol, raised.Token, err, first+1)
		}
		if err := store.Release(t.Context(), raised); err != nil {
			t.Fatal(err)
		}
		next, err := store.Acquire(t.Context(), driver.Request{Name: protocol, Owner: driver.NewOwner(), TTL: time.Minute, Floor: first + step})
		if err != nil || next.Token <= first+step {
			t.Errorf("%s: token %d, %v, after tokens that were raised to %d to %d", protocol, next.Token, err, first+1, first+step)
		}
	}
}

// TestStepsThatDiffer: stores of one server whose grants have steps of different lengths set no token aside twice.
func TestStepsThatDiffer(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.Redis, inMemory...)
	for _, protocol := range protocols {
		short, _ := openURL(t, server.URL()+"?protocol="+protocol)
		long, err := redislock.Open(t.Context(), server.URL()+"?protocol="+protocol, &redislock.Options{Redlock: true})
		if err != nil {
			t.Fatal(err)
		}
		defer long.Close()
		acquireAndRelease(t, short, protocol) // from then on the counter exists and the clock is known
		acquireAndRelease(t, long, protocol)
		floor := (uint64(time.Now().Add(time.Hour).UnixMicro())) / 1024 * 1024
		var last uint64
		for i, store := range []driver.Store{short, long, short, long} {
			grant, err := store.Acquire(t.Context(), driver.Request{Name: protocol, Owner: driver.NewOwner(), TTL: time.Minute, Floor: floor})
			if err != nil || grant.Token <= last {
				t.Errorf("%s, grant %d: token %d, %v; want one after %d", protocol, i, grant.Token, err, last)
			}
			last = grant.Token + store.Traits().TokenStep - 1
			if err := store.Release(t.Context(), grant); err != nil {
				t.Error(err)
			}
		}
	}
}

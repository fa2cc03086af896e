package redis

import (
	"fmt"
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/test/harness/servers"
	"github.com/redis/go-redis/v9"
)

// counterOf returns the key of a name's counter.
func counterOf(protocol, name string) string {
	return map[string]string{"redisson": "redisson_lock_token:{", "plain": "dlock:token:{"}[protocol] + name + "}"
}

// setCounter sets the last token of a name that was drawn. The plain protocol's is the last before a multiple of 1024.
func setCounter(t *testing.T, raw *redis.Client, protocol, name string, last uint64) {
	t.Helper()
	err := raw.Set(t.Context(), counterOf("redisson", name), last, 0).Err()
	if protocol == "plain" {
		last = last/1024*1024 + 1023
		err = raw.ZAdd(t.Context(), counterOf(protocol, name), redis.Z{Score: float64(last), Member: "t"}, redis.Z{Score: 1, Member: "new"}).Err()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestPlainCounterIsTheLastOfAStep: tokens that the server draws by its clock begin with a multiple of the step,
// so that a later proposal does not begin among them.
func TestPlainCounterIsTheLastOfAStep(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.Redis, inMemory...)
	store, _ := openURL(t, server.URL()+"?protocol=plain")
	for i := range 5 { // each counter is new
		if grant := acquireOne(t, store, fmt.Sprint(i)); grant.Token%store.Traits().TokenStep != 0 {
			t.Errorf("the first token is %d; want a multiple of %d", grant.Token, store.Traits().TokenStep)
		}
	}
}

// TestStepsThatDiffer: a Redlock and stores of its servers, whose grants have steps of different lengths, set no token
// aside twice.
func TestStepsThatDiffer(t *testing.T) {
	t.Parallel()
	group := servers.RunGroup(t, 3, servers.Redis, inMemory...)
	long := openRedlock(t, group.Addrs()...)
	acquireAndRelease(t, long, "warm") // from then on the clocks are known
	for _, raw := range clients(t, group.Addrs()...) {
		setCounter(t, raw, "plain", "x", uint64(time.Now().Add(time.Hour).UnixMicro()))
	}
	var last uint64
	for round := range 4 {
		stores := []driver.Store{long}
		if round%2 == 1 {
			stores = nil
			for _, server := range group {
				short, _ := openURL(t, server.URL()+"?protocol=plain")
				stores = append(stores, short)
			}
		}
		var tokens uint64
		for _, store := range stores {
			var grant driver.Grant
			eventually(t, "the last release has reached the server", func() (granted bool) {
				var err error
				grant, err = store.Acquire(t.Context(), inMode(driver.Mode{}, "x"))
				return err == nil
			})
			if grant.Token <= last {
				t.Errorf("round %d: token %d; want one after %d", round, grant.Token, last)
			}
			tokens = max(tokens, grant.Token+store.Traits().TokenStep-1)
			mustRelease(t, store, grant)
		}
		last = tokens
	}
}

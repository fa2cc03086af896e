package redis

import (
	"errors"
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/test/harness/servers"
	"github.com/redis/go-redis/v9"
)

// TestBreakAnotherProgramsLock: another program's lock is broken by the number that List shows for
// it, not by the token of an earlier holder.
func TestBreakAnotherProgramsLock(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.Redis, inMemory...)
	raw := clients(t, server.Addr())[0]
	for protocol, take := range map[string]func(name string) error{
		"redisson": func(name string) error {
			return errors.Join(raw.HSet(t.Context(), name, "8743c9c0-612d-420f-9b28-14d22a1b56c7:1", 1).Err(), raw.PExpire(t.Context(), name, time.Minute).Err())
		},
		"plain": func(name string) error {
			return raw.SetArgs(t.Context(), name, "secret of another", redis.SetArgs{Mode: "NX", TTL: time.Minute}).Err()
		},
	} {
		store, client := openURL(t, server.URL()+"?protocol="+protocol)
		mine := acquireAndRelease(t, store, protocol)
		if err := take(protocol); err != nil {
			t.Fatal(err)
		}
		if err := client.Break(t.Context(), protocol, mine); !errors.Is(err, driver.ErrNotHeld) {
			t.Errorf("%s: Break with the token of an earlier holder: %v; want ErrNotHeld", protocol, err)
		}
		var infos []driver.Info
		for info, err := range client.Locks(t.Context(), protocol) {
			if err != nil {
				t.Fatal(err)
			}
			infos = append(infos, info)
		}
		if len(infos) != 1 || infos[0].Token == mine || infos[0].Token == 0 || !infos[0].Since.IsZero() {
			t.Fatalf("%s: listed is %+v; want one holder with a number of its own", protocol, infos)
		}
		if err := client.Break(t.Context(), protocol, infos[0].Token); err != nil {
			t.Errorf("%s: Break with the number that is listed: %v", protocol, err)
		}
		if n := raw.Exists(t.Context(), protocol).Val(); n != 0 {
			t.Errorf("%s: it is still there", protocol)
		}
	}
}

package redis

import (
	"errors"
	"testing"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/redis/go-redis/v9"
)

// TestBreakAnotherProgramsLock: another program's lock is broken by the number that List shows for
// it, not by the token of an earlier holder.
func TestBreakAnotherProgramsLock(t *testing.T) {
	t.Parallel()
	server, raw := run(t)
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
		must(t, take(protocol))
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

// TestFindAnotherProgramsLock: a lock of another program is found by its name and can be broken, also
// if dlock has never used the name. List, which sees all strings of a server, leaves such names out.
func TestFindAnotherProgramsLock(t *testing.T) {
	t.Parallel()
	server, raw := run(t)
	_, client := openURL(t, server.URL()+"?protocol=plain")
	must(t, raw.Set(t.Context(), "stuck", "secret of another", 0).Err())
	if _, err := client.TryLock(t.Context(), "stuck"); !errors.Is(err, driver.ErrHeld) {
		t.Fatalf("TryLock: %v; want ErrHeld", err)
	}
	info, held, err := client.Find(t.Context(), "stuck")
	if err != nil || !held || info.Token == 0 || info.Holder != (driver.Holder{}) {
		t.Fatalf("Find: %+v, %v, %v; want a holder that is only a number", info, held, err)
	}
	for info := range client.Locks(t.Context(), "") {
		t.Errorf("listed is %+v", info)
	}
	if err := client.Break(t.Context(), "stuck", info.Token); err != nil {
		t.Errorf("Break: %v", err)
	}
	if _, held, err := client.Find(t.Context(), "stuck"); held || err != nil {
		t.Errorf("after Break Find returns %v, %v", held, err)
	}
}

package redis

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/test/harness/servers"
)

// TestWrongServerIsMisconfigured: a server that answers, but not as the URL says, is not
// unreachable. The error comes soon and says what is wrong.
func TestWrongServerIsMisconfigured(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.Redis, inMemory...)
	other := servers.Run(t, servers.Redis, inMemory...)
	memcached := servers.Run(t, servers.Memcached)
	sentinels := servers.RunSentinel(t, servers.SentinelOptions{Args: inMemory}).Sentinels.Addrs()
	for url, want := range map[string]string{
		"redis+cluster://" + server.Addr():                                      "not in cluster mode",
		"redis+sentinel://" + server.Addr() + "/main":                           "not a Sentinel",
		"redlock://" + server.Addr() + "," + other.Addr() + "," + server.Addr(): "are the same server",
		"rediss://" + server.Addr():                                             "without TLS",
		"redis+cluster://" + server.Addr() + "?tls=true":                        "without TLS",
		"redis+sentinel://" + server.Addr() + "/main?tls=true":                  "without TLS",
		"redis://" + memcached.Addr():                                           "does not answer as Redis does",
		"redis+sentinel://" + server.Addr() + "," + memcached.Addr() + "/main":  "not a Sentinel",
		"redis+sentinel://" + strings.Join(sentinels, ",") + "/other":           "no master of that name",
	} {
		t.Run(url, func(t *testing.T) {
			t.Parallel()
			separator := "?"
			if strings.Contains(url, "?") {
				separator = "&"
			}
			store, _ := openURL(t, url+separator+patient)
			client := dlock.New(store, &dlock.Options{RequestTimeout: time.Minute})
			t.Cleanup(func() { client.Close() })
			var err error
			eventually(t, "TryLock says what is wrong", func() bool {
				began := time.Now()
				_, err = client.TryLock(t.Context(), "a")
				if took := time.Since(began); took > 20*time.Second {
					t.Fatalf("TryLock took %v", took)
				}
				return !errors.Is(err, dlock.ErrUnreachable) // as a member of a Redlock is that answers late
			})
			if !errors.Is(err, dlock.ErrMisconfigured) || !strings.Contains(err.Error(), want) {
				t.Errorf("TryLock: %v; want ErrMisconfigured that says %q", err, want)
			}
		})
	}
}

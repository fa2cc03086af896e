package redis

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/test/harness/servers"
)

// TestWrongServerIsMisconfigured: a server that answers, but not as the URL says, is not unreachable.
// The error comes soon and says what is wrong.
func TestWrongServerIsMisconfigured(t *testing.T) {
	t.Parallel()
	server := servers.Run(t, servers.Redis)
	other := servers.Run(t, servers.Redis)
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
			_, client := openURL(t, url)
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			began := time.Now()
			_, err := client.TryLock(ctx, "a")
			if took := time.Since(began); took > 2*time.Second*slowdown {
				t.Errorf("TryLock took %v", took)
			}
			if !errors.Is(err, dlock.ErrMisconfigured) || errors.Is(err, dlock.ErrUnreachable) || !strings.Contains(err.Error(), want) {
				t.Errorf("TryLock: %v; want ErrMisconfigured that says %q", err, want)
			}
		})
	}
}

package stores

import "testing"

func TestMemcachedIdentity(t *testing.T) {
	checkIdentities(t, [][]string{
		{"memcached://h", "memcached://H:11211/", "MEMCACHED://h:11211"},
		{"memcached://h:11212"},
		{"memcached://[::1]", "memcached://[::1]:11211"},
		{"memcached://[::1]:1"},
	})
}

// TestMemcachedUsage: a URL that is wrong is a mistake of the command line.
func TestMemcachedUsage(t *testing.T) {
	for _, raw := range []string{"memcached://", "memcached:h", "memcached://a,b", "memcached://u:p@h", "memcached://h?x=1", "memcached://h:11211/db0"} {
		if _, err := Open(t.Context(), raw); !isURLError(err) {
			t.Errorf("%s: %v; want a usage error", raw, err)
		}
	}
}

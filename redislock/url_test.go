package redislock

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

func TestOpenReadsURLsOfOneServer(t *testing.T) {
	t.Run("one server", func(t *testing.T) {
		s := open(t, "redis://ann:p%40ss%3A1@example.test:7000/3?protocol=plain&read_timeout=700ms")
		o := s.route.viaClient.client.(*redis.Client).Options()
		if o.Addr != "example.test:7000" || o.DB != 3 || o.Username != "ann" || o.Password != "p@ss:1" || o.ReadTimeout != 700*time.Millisecond {
			t.Errorf("address %s, database %d, user %s, password %s, read timeout %v", o.Addr, o.DB, o.Username, o.Password, o.ReadTimeout)
		}
		if o.TLSConfig != nil || s.protocol != Plain {
			t.Errorf("TLS %v, %v; want no TLS and plain", o.TLSConfig, s.protocol)
		}
	})
	t.Run("defaults", func(t *testing.T) {
		s := open(t, "redis://example.test")
		o := s.route.viaClient.client.(*redis.Client).Options()
		if o.Addr != "example.test:6379" || o.DB != 0 || s.protocol != Redisson || s.replicas != 0 {
			t.Errorf("address %s, database %d, %v, %d replicas", o.Addr, o.DB, s.protocol, s.replicas)
		}
		if d := open(t, "redis://example.test?replicas=1").ackedRoute.ackTimeout; d != DefaultReplicaTimeout {
			t.Errorf("the replica timeout is %v; want %v", d, DefaultReplicaTimeout)
		}
	})
	t.Run("password alone", func(t *testing.T) {
		o := open(t, "redis://:secret@[::1]:7000").route.viaClient.client.(*redis.Client).Options()
		if o.Addr != "[::1]:7000" || o.Username != "" || o.Password != "secret" {
			t.Errorf("address %s, user %q, password %q", o.Addr, o.Username, o.Password)
		}
	})
}

func TestOpenReadsURLsOfTLSSentinelAndCluster(t *testing.T) {
	t.Run("TLS", func(t *testing.T) {
		o := open(t, "rediss://example.test").route.viaClient.client.(*redis.Client).Options()
		if o.TLSConfig == nil || o.TLSConfig.InsecureSkipVerify || o.TLSConfig.ServerName != "example.test" {
			t.Errorf("TLS %+v; want one that verifies example.test", o.TLSConfig)
		}
		if o := open(t, "rediss://[::1]:7000").route.viaClient.client.(*redis.Client).Options(); o.TLSConfig.ServerName != "::1" {
			t.Errorf("TLS verifies %q; want ::1", o.TLSConfig.ServerName)
		}
	})
	t.Run("Sentinel", func(t *testing.T) {
		s := open(t, "redis+sentinel://a:1,b,c:3/main?replicas=2&replica_timeout=300ms&db=4")
		if _, ok := s.route.viaClient.client.(*redis.Client); !ok || s.clustered.Load() || s.replicas != 2 || s.ackedRoute.ackTimeout != 300*time.Millisecond {
			t.Errorf("%T, %d replicas within %v", s.route.viaClient.client, s.replicas, s.ackedRoute.ackTimeout)
		}
		if o := s.route.viaClient.client.(*redis.Client).Options(); o.DB != 4 {
			t.Errorf("database %d; want 4", o.DB)
		}
	})
	t.Run("Cluster", func(t *testing.T) {
		s := open(t, "redis+cluster://a:1,b/?tls=true")
		o := s.route.viaClient.client.(*redis.ClusterClient).Options()
		if !s.clustered.Load() || strings.Join(o.Addrs, " ") != "a:1 b:6379" || o.TLSConfig == nil {
			t.Errorf("addresses %v, TLS %v", o.Addrs, o.TLSConfig)
		}
	})
}

func open(t *testing.T, url string) *Store {
	t.Helper()
	s, err := Open(t.Context(), url, nil)
	if err != nil {
		t.Fatalf("Open(%q): %v", url, err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func TestBadURLs(t *testing.T) {
	const canary, letters = "canary7bird", "canary_bird" // a parameter may have the second name
	for url, says := range map[string]string{
		"":                                         "does not begin",
		"redis":                                    "does not begin",
		"http://x":                                 "does not begin",
		"redis://":                                 "a host is missing",
		"redis://a,b":                              "one host, not 2",
		"redis://a/x":                              "database",
		"redis://a?protocol=3":                     "not redisson or plain",
		"redis://a?replicas=-1":                    "not a number from 0",
		"redis://a?pool_size=-1":                   "pool_size is",
		"redis+sentinel://a/m?pool_size=-1":        "pool_size is",
		"redis+cluster://a?pool_size=-1":           "pool_size is",
		"redis://a?replica_timeout=5":              "not a duration",
		"redis://a?no_such=1":                      "unknown parameter",
		"redis://a?tls=maybe":                      "not true or false",
		"redis://a?ca=/x":                          "are for TLS",
		"rediss://a?ca=/no/such/file":              "no such file",
		"rediss://a?ca=url_test.go":                "no certificate",
		"rediss://a?cert=/no/such/file":            "cert and key",
		"redis+sentinel://a":                       "name of the master",
		"redis+sentinel://a/b/c":                   "name of the master",
		"redis+cluster://a/3":                      "no path",
		"redis://a:b":                              "not followed by a port",
		"redis://::1":                              "not followed by a port",
		"redis+cluster://a:1,b:99999":              "99999 is no port",
		"redis://u:pass?" + canary + "@h:6379":     "%3F",
		"redis://u:1?" + canary + "@h:6379":        "%3F",
		"redis://u:1?" + canary:                    "a parameter's name",
		"redis://u:1?" + letters:                   "%3F",
		"redis://u:1?" + letters + "=":             "unknown parameter",
		"redis+sentinel://u:1/m?" + letters:        "unknown parameter",
		"redis+cluster://u:1?db=1&" + letters:      "unknown parameter",
		"redis://user:" + canary:                   "not followed by a port",
		"redis://user:1/" + canary:                 "database",
		"redis://:" + canary:                       "not followed by a port",
		"redis://u:" + canary + "%zz@a":            "'%'",
		"redis://u:" + canary + "@":                "a host is missing",
		"redis://u:" + canary + "@a,b":             "one host",
		"redis://u:" + canary + "@a/x":             "database",
		"redis+cluster://u:" + canary + "@a?bad=1": "unknown parameter",
		"redis+sentinel://a/m?sentinel_password=" + canary + "&bad=1": "unknown parameter",
		"redis://a?replicas=1%zz&password=" + canary:                  "cannot be read",
	} {
		store, err := Open(t.Context(), url, nil)
		if err == nil {
			store.Close()
			t.Errorf("Open(%q) = nil; want an error with %q", url, says)
			continue
		}
		if !strings.Contains(err.Error(), says) {
			t.Errorf("Open(%q): %v; want %q", url, err, says)
		}
		if strings.Contains(err.Error(), canary) || strings.Contains(err.Error(), letters) {
			t.Errorf("Open(%q) shows the password: %v", url, err)
		}
		if !errors.Is(err, ErrURL) {
			t.Errorf("Open(%q): %v; want ErrURL", url, err)
		}
	}
}

// TestURLTakesPrecedenceOverOptions: options count if the URL does not contain them.
func TestURLTakesPrecedenceOverOptions(t *testing.T) {
	opts := &Options{Protocol: Plain, Replicas: 2, ReplicaTimeout: time.Minute}
	for url, want := range map[string]Options{
		"redis://a?read_timeout=2m":                                 *opts,
		"redis://a?protocol=redisson&replicas=1&replica_timeout=1s": {Protocol: Redisson, Replicas: 1, ReplicaTimeout: time.Second},
	} {
		s, err := Open(t.Context(), url, opts)
		if err != nil {
			t.Fatalf("Open(%q): %v", url, err)
		}
		if got := (Options{Protocol: s.protocol, Replicas: s.replicas, ReplicaTimeout: s.ackedRoute.ackTimeout}); got != want {
			t.Errorf("Open(%q) has %+v; want %+v", url, got, want)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// FuzzErrorsHideThePassword: whatever is wrong with a URL, the error does not contain the text
// where a password may be.
func FuzzErrorsHideThePassword(f *testing.F) {
	const canary = "canary_bird"
	for _, after := range []string{"", "@", "@h", "@h:x", "@h:1/x", "@h?no_such=1", "?x@h", "?x=1@h", "?x", "/x@h", "#x@h", "%zz@h", "]@", ":1:2", "@@h ", "@h\x00", ",", "\n"} {
		for _, before := range []string{"", ":", "u:", "u:x/", "u:[", "h,u:", "u:1", "u:1/", "u:%", "u@", "u:p@h:1,", " u:\x7f", "u:1?", "u:1?x&"} {
			f.Add("redis", before, after)
		}
		for _, scheme := range []string{"rediss", "redis+sentinel", "redis+cluster", "http", ""} {
			f.Add(scheme, "u:", after)
		}
	}
	f.Fuzz(func(t *testing.T, scheme, before, after string) {
		if _, query, _ := strings.Cut(scheme+before, "?"); strings.Contains(query, "=") {
			return // the value of a parameter is no password
		}
		url := scheme + "://" + before + canary + after
		store, err := Open(t.Context(), url, nil)
		if err != nil {
			if strings.Contains(err.Error(), canary) {
				t.Errorf("Open(%q) shows the password: %v", url, err)
			}
			return
		}
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
}

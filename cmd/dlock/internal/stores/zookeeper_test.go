package stores

import (
	"strings"
	"testing"
)

func TestZooKeeperIdentity(t *testing.T) {
	checkIdentities(t, [][]string{
		{"zookeeper://h", "zookeeper://h:2181", "zookeeper://H/", "ZOOKEEPER://ann:secret@h?timeout=10s", "zookeeper://h?order=unfair", "zookeeper://h?modes=exclusive", "zookeeper://h,h:2181"},
		{"zookeeper://h:2182"},
		{"zookeeper://h/locks", "zookeeper://h/locks/", "zookeeper://u:secret@h:2181/locks?order=fair&create=true"},
		{"zookeeper://a,b/locks", "zookeeper://b:2181,a/locks"},
		{"zookeeper://h/locks/orders"},
		{"zookeeper://[::1]", "zookeeper://[::1]:2181"},
	})
}

func TestBadZooKeeperURLs(t *testing.T) {
	for _, raw := range []string{
		"zookeeper://", "zookeeper://a,,b", "zookeeper://h:port", "zookeeper://ann:secret?x@h/", "zookeeper://ann:sec%ret@h/",
		"zookeeper://h?order=secret2", "zookeeper://h?modes=shared", "zookeeper://h?secret=1", "zookeeper://h?timeout=soon", "zookeeper://h/a//b", "zookeeper://h/../a",
		"zookeeper://h?acl=creator", "zookeeper://h?ca=/no/file", "zookeeper://h?tls=true&ca=/no/file", "zookeeper:h",
	} {
		store, err := Open(t.Context(), raw)
		if err == nil {
			_ = store.Close()
			t.Errorf("%s was opened", raw)
			continue
		}
		if strings.Contains(strings.ReplaceAll(err.Error(), "secret2", ""), "secret") {
			t.Errorf("%s: the password is in %q", raw, err)
		}
	}
}

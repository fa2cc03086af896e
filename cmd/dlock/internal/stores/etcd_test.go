package stores

import (
	"strings"
	"testing"
)

func TestEtcdIdentity(t *testing.T) {
	checkIdentities(t, [][]string{
		{"etcd://h", "etcd://h:2379", "ETCD://H/", "etcd://h?tls=false"},
		{"etcd://h:1"},
		{"etcd://h/shop", "etcd://h:2379/shop/", "etcd://h/s%68op"},
		{"etcd://h/shop/eu"},
		{"etcd://a,b,c", "etcd://c:2379,b,a:2379/"},
		{"etcd://[::1]", "etcd://[::1]:2379"},
	})
}

// TestEtcdUsage: a URL that is wrong is a mistake of the command line.
func TestEtcdUsage(t *testing.T) {
	for _, raw := range []string{"etcd://", "etcd:h", "etcd://a:secret", "etcd://h?other=1", "etcd://ann:sec?ret@h"} {
		_, err := Open(t.Context(), raw)
		if !isURLError(err) || strings.Contains(err.Error(), "sec") {
			t.Errorf("%s: %v", raw, err)
		}
	}
}

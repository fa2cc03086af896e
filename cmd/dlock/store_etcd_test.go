package main

import (
	"strings"
	"testing"
)

// TestEtcdIdentity: all spellings of a store are one, and different stores are not.
func TestEtcdIdentity(t *testing.T) {
	stores := [][]string{
		{"etcd://h", "etcd://h:2379", "ETCD://H/", "etcd://h?tls=false"},
		{"etcd://h:1"},
		{"etcd://h/shop", "etcd://h:2379/shop/", "etcd://h/s%68op"},
		{"etcd://h/shop/eu"},
		{"etcd://a,b,c", "etcd://c:2379,b,a:2379/"},
		{"etcd://[::1]", "etcd://[::1]:2379"},
	}
	seen := make(map[string]string)
	for _, spellings := range stores {
		first := ""
		for _, raw := range spellings {
			store, err := openStoreURL(t.Context(), raw)
			if err != nil {
				t.Fatalf("%s: %v", raw, err)
			}
			if err := store.Close(); err != nil {
				t.Error(err)
			}
			if first == "" {
				first = store.identity
			}
			if store.identity != first {
				t.Errorf("%s is %q, and %s is %q; want the same", spellings[0], first, raw, store.identity)
			}
		}
		if other, twice := seen[first]; twice {
			t.Errorf("%s and %s are both %q", other, spellings[0], first)
		}
		seen[first] = spellings[0]
	}
}

// TestEtcdPlace: what is shown is where the locks are, and no secret.
func TestEtcdPlace(t *testing.T) {
	hosts, prefix := etcdPlace(splitStoreURL("etcd://ann:sec/r@et@a:1,b/shop/?tls=true"))
	if hosts != "a:1,b" || prefix != "shop" {
		t.Errorf("the place is %q, %q", hosts, prefix)
	}
}

// TestEtcdUsage: a URL that is wrong is a mistake of the command line.
func TestEtcdUsage(t *testing.T) {
	for _, raw := range []string{"etcd://", "etcd:h", "etcd://a:secret", "etcd://h?other=1", "etcd://ann:sec?ret@h"} {
		_, err := openStoreURL(t.Context(), raw)
		if err == nil || exitStatus(err) != exitUsage || strings.Contains(err.Error(), "sec") {
			t.Errorf("%s: %v", raw, err)
		}
	}
}

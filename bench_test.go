package dlock_test

import (
	"context"
	"sync"
	"testing"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/memlock"
)

func BenchmarkPair(b *testing.B) {
	c := dlock.New(memlock.New(), nil)
	defer c.Close()
	ctx := context.Background()
	b.ReportAllocs()
	for b.Loop() {
		lease, err := c.Lock(ctx, "orders/42")
		if err != nil {
			b.Fatal(err)
		}
		if err := lease.Unlock(ctx); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkFloor is two operations on a map with a mutex: the minimum of any lock.
func BenchmarkFloor(b *testing.B) {
	var mu sync.Mutex
	owners := map[string]driver.Owner{}
	owner := driver.NewOwner()
	for b.Loop() {
		mu.Lock()
		if _, held := owners["orders/42"]; !held {
			owners["orders/42"] = owner
		}
		mu.Unlock()
		mu.Lock()
		if owners["orders/42"] == owner {
			delete(owners, "orders/42")
		}
		mu.Unlock()
	}
}

func BenchmarkBare(b *testing.B) {
	s := memlock.New()
	ctx := context.Background()
	req := driver.Request{Name: "orders/42", Owner: driver.NewOwner(), TTL: dlock.DefaultTTL}
	b.ReportAllocs()
	for b.Loop() {
		g, err := s.Acquire(ctx, req)
		if err != nil {
			b.Fatal(err)
		}
		if err := s.Release(ctx, g); err != nil {
			b.Fatal(err)
		}
	}
}

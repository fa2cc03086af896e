package dlock_test

import (
	"context"
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

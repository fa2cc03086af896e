package dlock_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// The simulation finds stores that are broken on purpose.
func TestSimulationFindsBrokenStores(t *testing.T) {
	for _, broken := range []struct {
		name    string
		spoil   func(full) full
		finding string
	}{
		{"the lock expires at half its TTL", func(s full) full { return halfTTL{s} }, "two trust"},
		{"trust is counted from the reply", func(s full) full { return trustFromReply{s} }, "two trust"},
		{"trust is counted from the reply to a renewal", func(s full) full { return renewedFromReply{s} }, "two trust"},
		{"a batch ignores the holders", func(s full) full { return batchTakes{s} }, "two trust"},
		{"the next grant has tokens of this one", func(s full) full { return overlaps{s} }, "token"},
		{"release ignores the owner", func(s full) full { return releasesAnyOwner{s} }, "two trust"},
		{"tokens start again", func(s full) full { return tokenResets{s} }, "token"},
		{"shared holders enter beside an exclusive one", func(s full) full { return sharesAlways{s} }, "two trust"},
		{"the release of one share ends all", func(s full) full { return releasesAllShares{s} }, "two trust"},
		{"a semaphore admits one more", func(s full) full { return oneMore{s} }, "holders trust"},
		{"the lock never expires", func(s full) full { return neverExpires{s} }, "for ever"},
	} {
		t.Run(broken.name, func(t *testing.T) {
			t.Parallel()
			const tries = 300
			for seed := range uint64(tries) {
				var violations []string
				synctest.Test(t, func(t *testing.T) { violations = simulate(t, seed, broken.spoil, new(tally)) })
				for _, v := range violations {
					if strings.Contains(v, broken.finding) {
						return
					}
				}
			}
			t.Errorf("%d seeds did not find it", tries)
		})
	}
}

type halfTTL struct{ full }

func (s halfTTL) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	ttl := req.TTL
	req.TTL /= 2
	grant, err := s.full.Acquire(ctx, req)
	grant.TTL = ttl
	return grant, err
}

func (s halfTTL) Renew(ctx context.Context, grants []driver.Grant) []error {
	return nil // without renewing
}

type trustFromReply struct{ full }

func (s trustFromReply) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	grant, err := s.full.Acquire(ctx, req)
	grant.TTL += 1500 * time.Millisecond // like a client that counts from a slow reply
	return grant, err
}

type renewedFromReply struct{ full }

func (s renewedFromReply) Renew(ctx context.Context, grants []driver.Grant) []error {
	earlier := slices.Clone(grants)
	for i := range earlier {
		earlier[i].TTL /= 4 // what is left when a slow reply arrives
	}
	return s.full.Renew(ctx, earlier)
}

type batchTakes struct{ full }

func (s batchTakes) AcquireAll(ctx context.Context, reqs []driver.Request) ([]driver.Grant, error) {
	for info := range s.List(ctx, "") {
		_ = s.Break(ctx, info.Name, info.Token)
	}
	return s.full.AcquireAll(ctx, reqs)
}

type releasesAnyOwner struct{ full }

func (s releasesAnyOwner) Release(ctx context.Context, grant driver.Grant) error {
	for info := range s.List(ctx, "") {
		if info.Name == grant.Name {
			return s.Break(ctx, info.Name, info.Token)
		}
	}
	return s.full.Release(ctx, grant)
}

type sharesAlways struct{ full }

func (s sharesAlways) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	if req.Mode.Limit == 0 {
		req.Mode.Shared = true
	}
	return s.full.Acquire(ctx, req)
}

type releasesAllShares struct{ full }

func (s releasesAllShares) Release(ctx context.Context, grant driver.Grant) error {
	err := s.full.Release(ctx, grant)
	for info := range s.List(ctx, grant.Name) {
		if err == nil && info.Name == grant.Name && info.Mode.Shared {
			_ = s.Break(ctx, info.Name, info.Token)
		}
	}
	return err
}

type oneMore struct{ full }

func (s oneMore) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	if req.Mode.Limit > 0 {
		req.Mode.Limit++
	}
	return s.full.Acquire(ctx, req)
}

type overlaps struct{ full }

func (s overlaps) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	grant, err := s.full.Acquire(ctx, req)
	grant.Token /= s.Traits().TokenStep
	return grant, err
}

type tokenResets struct{ full }

func (s tokenResets) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	grant, err := s.full.Acquire(ctx, req)
	grant.Token = 1 + grant.Token%3
	return grant, err
}

func (s tokenResets) Release(ctx context.Context, grant driver.Grant) error {
	grant.Token = 0
	return s.full.Release(ctx, grant)
}

type neverExpires struct{ full }

func (s neverExpires) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	ttl := req.TTL
	req.TTL = 24 * time.Hour
	grant, err := s.full.Acquire(ctx, req)
	grant.TTL = ttl
	return grant, err
}

func (s neverExpires) Renew(context.Context, []driver.Grant) []error { return nil }

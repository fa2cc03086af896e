package quorum_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/attempts"
	"github.com/dlock-go/dlock/internal/backoff"
	"github.com/dlock-go/dlock/memlock"
	"github.com/dlock-go/dlock/quorum"
)

// strict is a member that compares the last token of the span in Renew and Release, and shows it, as Redis does.
type strict struct {
	conn
	last *lasts
	log  *attempts.Log
}

type lasts struct {
	mu sync.Mutex
	of map[driver.Owner]uint64
}

func (l *lasts) get(o driver.Owner) uint64    { l.mu.Lock(); defer l.mu.Unlock(); return l.of[o] }
func (l *lasts) set(o driver.Owner, t uint64) { l.mu.Lock(); defer l.mu.Unlock(); l.of[o] = t }

func newStrict(c *fakeMember, l *lasts) strict {
	m := strict{conn: conn{c}, last: l}
	m.log = attempts.New(func(ctx context.Context, name string, owner driver.Owner) error {
		return m.conn.Release(ctx, driver.Grant{Name: name, Owner: owner})
	})
	return m
}

func (m strict) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	var grant driver.Grant
	var mu sync.Mutex
	c := m.fakeMember
	err := c.call(ctx, "Acquire", func(ctx context.Context, s *memlock.Store) error {
		r := req
		if c.clock != nil {
			r.Floor = max(r.Floor, c.clock())
		}
		got, err := s.Acquire(ctx, r)
		if err == nil {
			c.noteToken(req.Name, lastToken(got))
			m.last.set(req.Owner, lastToken(got))
			mu.Lock()
			grant = got
			mu.Unlock()
		}
		return err
	})
	mu.Lock()
	defer mu.Unlock()
	if err != nil {
		if !errors.Is(err, driver.ErrHeld) && !errors.Is(err, errRefused) {
			m.log.Unanswered(req.Name, req.Owner)
		}
		return driver.Grant{}, err
	}
	return grant, nil
}

func (m strict) RaiseToken(ctx context.Context, grant driver.Grant, token uint64) (driver.Grant, error) {
	var raised driver.Grant
	c := m.fakeMember
	err := c.call(ctx, "RaiseToken", func(ctx context.Context, s *memlock.Store) error {
		got, err := s.RaiseToken(ctx, grant, token)
		if err == nil {
			c.noteToken(grant.Name, lastToken(got))
			m.last.set(grant.Owner, lastToken(got))
			raised = got
		}
		return err
	})
	return raised, err
}

func (m strict) Renew(ctx context.Context, grants []driver.Grant) []error {
	errs := m.conn.Renew(ctx, grants)
	if errs == nil {
		errs = make([]error, len(grants))
	}
	bad := false
	for i, g := range grants {
		if errs[i] == nil && m.last.get(g.Owner) != lastToken(g) {
			errs[i] = driver.ErrNotHeld
		}
		bad = bad || errs[i] != nil
	}
	if !bad {
		return nil
	}
	return errs
}

func (m strict) Release(ctx context.Context, grant driver.Grant) error {
	if grant.Token != 0 && m.last.get(grant.Owner) != lastToken(grant) {
		return driver.ErrNotHeld
	}
	released, err := m.log.Settle(ctx, grant)
	if err != nil {
		return err
	}
	defer released()
	return m.conn.Release(ctx, grant)
}

func TestSpanHistory(t *testing.T) {
	for seed := range uint64(120) {
		synctest.Test(t, func(t *testing.T) { spanHistory(t, seed) })
	}
}

func spanHistory(t *testing.T, seed uint64) {
	ctx := t.Context()
	random := rand.New(rand.NewPCG(seed, 7))
	all := fakeMembers(3 + 2*random.IntN(2))
	majority := len(all)/2 + 1
	known := make([]*lasts, len(all))
	clocks := random.IntN(2) == 0
	for i, c := range all {
		known[i] = &lasts{of: make(map[driver.Owner]uint64)}
		slow := time.Microsecond + time.Duration(random.Int64N(int64(20*time.Millisecond)))
		c.delay = func() time.Duration { return rand.N(slow) }
		skew := time.Duration(random.Int64N(int64(10*time.Second))) - 5*time.Second
		if clocks {
			c.clock = func() uint64 { return uint64(time.Now().Add(skew).UnixMicro()) }
		}
	}
	openAll := func() *quorum.Store {
		stores := make([]driver.Store, len(all))
		for i, c := range all {
			m := newStrict(c, known[i])
			t.Cleanup(func() { m.log.Close() })
			stores[i] = m
		}
		s, err := quorum.New(stores, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		return s
	}
	disturb := func(last map[string]uint64) {
		for _, i := range random.Perm(len(all))[:random.IntN(len(all)+1-majority)+random.IntN(2)] {
			all[i].set([]fault{up, gone, mute, lost, late}[random.IntN(5)])
		}
		for range random.IntN(4) {
			i := random.IntN(len(all))
			all[i].set(up)
			if random.IntN(2) == 0 {
				all[i].deliver()
			}
		}
		if i := random.IntN(len(all)); random.IntN(3) == 0 {
			for name, token := range last {
				know := 0
				for j, c := range all {
					if j != i && c.knownToken(name) >= token {
						know++
					}
				}
				if know < majority {
					return
				}
			}
			all[i].restartEmpty()
		}
	}
	last := make(map[string]uint64)
	client := openAll()
	names := []string{"x", "y"}
	var renewed, repeated, failed int
	for granted, tries := 0, 0; granted < 40 && tries < 400; tries++ {
		if random.IntN(3) == 0 {
			client = openAll()
		}
		disturb(last)
		name := names[random.IntN(2)]
		req := request(name, 2*time.Second)
		req.Span = []uint64{0, 1, 5, 1024, 100_000}[random.IntN(5)]
		grant, err := client.Acquire(ctx, req)
		if err != nil && random.IntN(2) == 0 { // the same owner asks again
			disturb(last)
			repeated++
			grant, err = client.Acquire(ctx, req)
		}
		if err != nil {
			failed++
			if random.IntN(2) == 0 {
				_ = client.Release(ctx, driver.Grant{Name: name, Owner: req.Owner})
			}
			_ = backoff.Sleep(ctx, rand.N(3*time.Second))
			continue
		}
		if grant.Token <= last[name] {
			t.Fatalf("seed %d: %d tokens from %d after %d", seed, grant.Span, grant.Token, last[name])
		}
		if grant.Span != max(1, req.Span) {
			t.Errorf("seed %d: span %d of %d", seed, grant.Span, req.Span)
		}
		knows := 0
		for _, c := range all {
			if c.knownToken(name) >= lastToken(grant) {
				knows++
			}
		}
		if knows < majority {
			t.Fatalf("seed %d: %d of %d members have set aside %d..%d", seed, knows, len(all), grant.Token, lastToken(grant))
		}
		last[name] = lastToken(grant)
		granted++
		for range random.IntN(4) {
			disturb(last)
			if random.IntN(3) == 0 {
				again, err := client.Acquire(ctx, req)
				if err == nil && again.Token == grant.Token && again.Span != grant.Span {
					t.Errorf("seed %d: reacquired with %d of %d tokens", seed, again.Span, grant.Span)
				}
				if err == nil && again.Token != grant.Token {
					if again.Token <= last[name] {
						t.Fatalf("seed %d: reacquired %d after %d", seed, again.Token, last[name])
					}
					grant = again
					last[name] = lastToken(grant)
				}
			}
			if client.Renew(ctx, []driver.Grant{grant}) == nil {
				renewed++
			}
			_ = backoff.Sleep(ctx, rand.N(700*time.Millisecond))
		}
		switch random.IntN(3) {
		case 0:
			_ = client.Release(ctx, grant)
		case 1: // all are up: a lock is either renewed for good, or not held
			for _, c := range all {
				c.set(up)
			}
			if client.Renew(ctx, []driver.Grant{grant}) == nil {
				time.Sleep(300 * time.Millisecond) // repaired
				for _, c := range all {
					c.deliver()
				}
				if errs := client.Renew(ctx, []driver.Grant{grant}); errs != nil {
					t.Errorf("seed %d: repaired, and then: %v", seed, errs)
				}
				if err := client.Release(ctx, grant); err != nil {
					t.Errorf("seed %d: Release: %v", seed, err)
				}
			}
		}
	}
	t.Logf("seed %d: %d renewed, %d repeated, %d failed", seed, renewed, repeated, failed)
}

package redis

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/quorum"
	"github.com/dlock-go/dlock/redislock"
	"github.com/dlock-go/dlock/test/harness/servers"
)

// TestRedlockTokensStayNearTheClocks: goroutines that hand a lock over do not make its tokens run
// ahead of the servers' clocks. A server that forgets its counter takes the next token from its
// clock.
func TestRedlockTokensStayNearTheClocks(t *testing.T) {
	group := servers.RunGroup(t, 3, servers.Redis, inMemory...)
	for _, processes := range []int{1, 2} {
		var all sync.WaitGroup
		var last, pairs atomic.Uint64
		name := strings.Repeat("x", processes)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		for range processes {
			store, _ := openURL(t, "redlock://"+strings.Join(group.Addrs(), ","))
			client := dlock.New(store, nil)
			for range 8 {
				all.Go(func() {
					for ctx.Err() == nil {
						lease, err := client.Lock(ctx, name)
						if err != nil {
							continue
						}
						last.Store(lease.Token())
						pairs.Add(1)
						_ = lease.Unlock(t.Context())
					}
				})
			}
			defer client.Close()
		}
		all.Wait()
		ahead := time.Until(time.UnixMicro(int64(last.Load())))
		if ahead > 20*time.Millisecond {
			t.Errorf("%d processes, %d pairs: the last token is %v ahead of the clock", processes, pairs.Load(), ahead)
		}
	}
}

// TestRedlockAgreesOnTokens: members whose counters are ahead of the clock, by less and by more than a
// grant's tokens, agree on the tokens of a grant, show one of them, and keep the lock through a renewal.
func TestRedlockAgreesOnTokens(t *testing.T) {
	t.Parallel()
	group := servers.RunGroup(t, 3, servers.Redis, inMemory...)
	for name, protocols := range map[string][3]string{
		"plain": {"plain", "plain", "plain"}, "redisson": {"redisson", "redisson", "redisson"}, "mixed": {"plain", "redisson", "plain"},
	} {
		t.Run(name, func(t *testing.T) {
			var members []driver.Store
			for i, addr := range group.Addrs() {
				m, err := redislock.Open(t.Context(), "redis://"+addr+"?protocol="+protocols[i], nil)
				if err != nil {
					t.Fatal(err)
				}
				defer m.Close()
				members = append(members, m)
			}
			s, err := quorum.New(members, &quorum.Options{MemberTimeout: memberTimeout})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			step, last := s.Traits().TokenStep, uint64(0)
			for round := range 12 {
				ahead := []time.Duration{0, 30 * time.Microsecond, time.Second, time.Minute, 0, 0}[round%6]
				req := driver.Request{Name: name, Owner: driver.NewOwner(), TTL: time.Minute}
				req.Floor = max(last, uint64(time.Now().UnixMicro())) + uint64(ahead.Microseconds())
				if ahead > 0 {
					m := members[round%3]
					var grant driver.Grant
					eventually(t, "the last release has reached the member", func() (free bool) {
						grant, err = m.Acquire(t.Context(), req)
						return err == nil
					})
					if err := m.Release(t.Context(), grant); err != nil {
						t.Fatal(err)
					}
				}
				req = driver.Request{Name: name, Owner: driver.NewOwner(), TTL: time.Minute}
				grant := mustAcquire(t, s, req)
				if grant.Token <= last {
					t.Errorf("round %d: token %d after %d", round, grant.Token, last)
				}
				last = grant.Token + step - 1
				<-time.After(5 * time.Millisecond) // the member outside of the majority follows
				if again := mustAcquire(t, s, req); again.Token != grant.Token {
					t.Errorf("round %d: token %d, and then %d", round, grant.Token, again.Token)
				}
				if errs := s.Renew(t.Context(), []driver.Grant{grant}); errs != nil {
					t.Errorf("round %d: Renew: %v", round, errs)
				}
				shown := wantShown(t, s, grant)
				var want error
				if round%2 == 0 {
					want = driver.ErrNotHeld
					if err := s.Break(t.Context(), name, shown); err != nil {
						t.Errorf("round %d: Break: %v", round, err)
					}
				}
				if err := s.Release(t.Context(), grant); !errors.Is(err, want) {
					t.Errorf("round %d: Release: %v; want %v", round, err, want)
				}
				<-time.After(5 * time.Millisecond)
			}
		})
	}
}

// wantShown returns the token by which a refusal and Find show a grant.
func wantShown(t *testing.T, s *quorum.Store, grant driver.Grant) uint64 {
	t.Helper()
	_, err := s.Acquire(t.Context(), driver.Request{Name: grant.Name, Owner: driver.NewOwner(), TTL: time.Minute})
	held, ok := errors.AsType[*driver.HeldError](err)
	if !ok || held.Token < grant.Token || held.Token >= grant.Token+s.Traits().TokenStep {
		t.Fatalf("the tokens begin with %d: refused with %v, %v", grant.Token, held, err)
	}
	info, found, err := s.Find(t.Context(), grant.Name)
	if !found || err != nil || info.Token != held.Token {
		t.Errorf("Find shows %d, %v, %v; the refusal %d", info.Token, found, err, held.Token)
	}
	return held.Token
}

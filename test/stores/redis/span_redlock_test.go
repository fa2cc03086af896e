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

// TestRedlockSpans: members whose counters are ahead of the clock, by less and by more than a span,
// agree on the tokens of a span, show one of them, and keep the lock through a renewal.
func TestRedlockSpans(t *testing.T) {
	t.Parallel()
	group := servers.RunGroup(t, 3, servers.Redis, inMemory...)
	for _, protocol := range []string{"plain", "redisson", "mixed"} {
		var members []driver.Store
		for i, addr := range group.Addrs() {
			p := protocol
			if p == "mixed" {
				p = []string{"plain", "redisson", "plain"}[i]
			}
			m, err := redislock.Open(t.Context(), "redis://"+addr+"?protocol="+p, nil)
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
		last := uint64(0)
		name := protocol
		for round := range 12 {
			ahead := []time.Duration{0, 500 * time.Microsecond, time.Second, time.Minute, 0, 0}[round%6]
			m := members[round%3]
			if ahead > 0 {
				floor := max(last, uint64(time.Now().UnixMicro())) + uint64(ahead.Microseconds())
				g, err := m.Acquire(t.Context(), driver.Request{Name: name, Owner: driver.NewOwner(), TTL: time.Minute, Floor: floor})
				if err != nil {
					t.Fatal(err)
				}
				if err := m.Release(t.Context(), g); err != nil {
					t.Fatal(err)
				}
			}
			span := []uint64{1024, 1, 0, 16}[round%4]
			req := driver.Request{Name: name, Owner: driver.NewOwner(), TTL: time.Minute, Span: span, Holder: driver.Holder{Note: "me"}}
			grant, err := s.Acquire(t.Context(), req)
			if err != nil {
				t.Fatalf("%s %d: %v", protocol, round, err)
			}
			end := grant.Token + max(1, grant.Span) - 1
			if grant.Token <= last || grant.Span != max(1, span) {
				t.Errorf("%s %d: %d tokens from %d after %d", protocol, round, grant.Span, grant.Token, last)
			}
			last = end
			<-time.After(5 * time.Millisecond) // the member outside of the majority follows
			again, err := s.Acquire(t.Context(), req)
			if err != nil || again.Token != grant.Token || again.Span != grant.Span {
				t.Errorf("%s %d: again %+v %v", protocol, round, again, err)
			}
			if errs := s.Renew(t.Context(), []driver.Grant{grant}); errs != nil {
				t.Errorf("%s %d: %v", protocol, round, errs)
			}
			_, err = s.Acquire(t.Context(), driver.Request{Name: name, Owner: driver.NewOwner(), TTL: time.Minute, Span: 7})
			held, ok := errors.AsType[*driver.HeldError](err)
			if !ok || held.Token < grant.Token || held.Token > end {
				t.Errorf("%s %d: %d..%d, refused with %+v %v", protocol, round, grant.Token, end, held, err)
			}
			info, found, err := s.Find(t.Context(), name)
			if !found || info.Token != held.Token {
				t.Errorf("%s %d: shown %d %v %v, refused by %d", protocol, round, info.Token, found, err, held.Token)
			}
			if round%2 == 0 {
				if err := s.Break(t.Context(), name, info.Token); err != nil {
					t.Errorf("%s %d: Break: %v", protocol, round, err)
				}
				if err := s.Release(t.Context(), grant); !errors.Is(err, driver.ErrNotHeld) {
					t.Errorf("%s %d: Release after Break: %v", protocol, round, err)
				}
			} else if err := s.Release(t.Context(), grant); err != nil {
				t.Errorf("%s %d: Release: %v", protocol, round, err)
			}
			<-time.After(5 * time.Millisecond) // the member outside of the majority follows
		}
	}
}

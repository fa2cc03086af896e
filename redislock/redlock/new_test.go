package redlock

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/redislock/internal/master"
	"github.com/redis/go-redis/v9"
)

func TestNewRejectsBadClients(t *testing.T) {
	clients := func(n int) (all []*redis.Client) {
		for range n {
			client := redis.NewClient(&redis.Options{})
			t.Cleanup(func() { client.Close() })
			all = append(all, client)
		}
		return all
	}
	twice := clients(3)
	twice[2] = twice[0]
	for _, c := range []struct {
		clients []*redis.Client
		opts    *Options
		reason  string
	}{
		{nil, nil, "tolerate no failure"},
		{clients(1), nil, "use a server by itself"},
		{clients(2), nil, "tolerate no failure"},
		{clients(4), nil, "no more failures than 3 servers do"},
		{clients(65), nil, "at most 63"},
		{twice, nil, "clients 1 and 3 are the same"},
		{append(clients(2), nil), nil, "client 3 is nil"},
		{clients(3), &Options{MemberTimeout: math.MaxInt64}, "no TTL is allowed"},
	} {
		s, err := New(c.clients, c.opts)
		if err == nil || !strings.Contains(err.Error(), c.reason) {
			t.Errorf("%d clients: want an error with %q, got %v, %v", len(c.clients), c.reason, s, err)
		}
	}
}

func TestOpen(t *testing.T) {
	for url, limit := range map[string]time.Duration{
		"redlock://a,b,c": DefaultMemberTimeout, "redlock://u:p%40w@a,b:1,c/2?tls=true&member_timeout=200ms&protocol=plain": 200 * time.Millisecond,
	} {
		s, err := Open(t.Context(), url, nil)
		if err != nil {
			t.Fatalf("%s: %v", url, err)
		}
		if traits := s.Traits(); traits.MinTTL != 4*limit || traits.TokenStep != 256 {
			t.Errorf("%s: %+v; want a MemberTimeout of %v, and 256 tokens", url, traits, limit)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	for url, reason := range map[string]string{
		"redis://a,b,c": "redlock://", "redlock://a,b": "tolerate no failure", "redlock://a,b,c?protocol=redisson": "plain protocol only",
		"redlock://a,b,c?member_timeout=0": "not a duration", "redlock://:secret@a,b,c?protocl=x": "unknown parameter",
		"redlock://:secret@a,b,c/secret": "number of a database",
	} {
		s, err := Open(t.Context(), url, nil)
		if err == nil || !strings.Contains(err.Error(), reason) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v, %v; want an error with %q", url, s, err, reason)
		}
	}
}

// TestSameServerTwiceIsRejected: two members with different addresses reach one server, whose
// vote would count twice.
func TestSameServerTwiceIsRejected(t *testing.T) {
	all := fakeMembers(3)
	s := start(t, []*fakeMember{all[0], all[1], all[0]})
	for range 2 {
		_, err := s.Acquire(t.Context(), request("x", time.Minute))
		if err == nil || !strings.Contains(err.Error(), "same server") ||
			!strings.Contains(err.Error(), "member 1") || !strings.Contains(err.Error(), "member 3") {
			t.Errorf("want an error that names members 1 and 3, got: %v", err)
		}
		if errors.Is(err, driver.ErrUnreachable) || errors.Is(err, driver.ErrHeld) {
			t.Errorf("want an error that is not worth a retry, got: %v", err)
		}
	}
	s.Close()
	checkFree(t, all, "in the end")
}

// TestSameServerRenewsOnce: one of two members that are one server could not be reached at first.
// When it returns, it does not count for a renewal beside the other.
func TestSameServerRenewsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := fakeMembers(3)
		other := &unidentified{all[0], make(chan struct{})}
		s := start(t, []master.Store{all[0], all[1], other})
		grant := mustAcquire(t, s, request("x", time.Minute)) // by two servers of three
		close(other.back)
		all[1].restartEmpty()
		if errs := s.Renew(t.Context(), []driver.Grant{grant}); errs == nil {
			t.Error("a lock that one server of two holds was renewed")
		}
	})
}

// TestShortestTTLCanBeLocked: the shortest TTL leaves time for the drift of the clocks, also if the
// MemberTimeout is shorter than that.
func TestShortestTTLCanBeLocked(t *testing.T) {
	for _, timeout := range []time.Duration{time.Microsecond, 500 * time.Microsecond, time.Millisecond, time.Second} {
		synctest.Test(t, func(t *testing.T) {
			s := startWith(t, fakeMembers(3), &Options{MemberTimeout: timeout})
			settle(t, s)
			if grant, err := s.Acquire(t.Context(), request("x", s.Traits().MinTTL)); err != nil || grant.TTL <= 0 {
				t.Errorf("MemberTimeout %v: Acquire for %v: %+v, %v", timeout, s.Traits().MinTTL, grant, err)
			}
		})
	}
}

func TestCallsAfterCloseReturnErrClosed(t *testing.T) {
	s := start(t, fakeMembers(3))
	grant := mustAcquire(t, s, request("x", time.Minute))
	s.Close()
	ctx := t.Context()
	_, acquire := s.Acquire(ctx, request("y", time.Minute))
	_, watch := s.Watch(ctx, request("y", time.Minute), func() {})
	_, diagnose := s.Diagnose(ctx)
	for call, err := range map[string]error{
		"Acquire": acquire, "Watch": watch, "Diagnose": diagnose, "Release": s.Release(ctx, grant),
		"Renew": s.Renew(ctx, []driver.Grant{grant})[0], "Break": s.Break(ctx, "x", grant.Token),
	} {
		if !errors.Is(err, driver.ErrClosed) {
			t.Errorf("%s: want ErrClosed, got: %v", call, err)
		}
	}
}

// unidentified is a member that cannot tell its identity until it is back.
type unidentified struct {
	*fakeMember
	back chan struct{}
}

func (a *unidentified) Identify(ctx context.Context) (string, error) {
	select {
	case <-a.back:
		return a.fakeMember.Identify(ctx)
	default:
		return "", errRefused
	}
}

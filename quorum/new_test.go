package quorum_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/memlock"
	"github.com/dlock-go/dlock/quorum"
)

func stores(n int) (all []driver.Store) {
	for range n {
		all = append(all, memlock.New())
	}
	return all
}

func TestNewRejectsBadQuorums(t *testing.T) {
	twice := stores(3)
	twice[2] = twice[0]
	for _, c := range []struct {
		members []driver.Store
		opts    *quorum.Options
		reason  string
	}{
		{nil, nil, "tolerate no failure"},
		{stores(1), nil, "use a store by itself"},
		{stores(2), nil, "tolerate no failure"},
		{stores(4), nil, "no more failures than 3 members do"},
		{stores(65), nil, "at most 63"},
		{twice, nil, "members 1 and 3 are the same store"},
		{append(stores(2), nil), nil, "member 3 is nil"},
		{stores(3), &quorum.Options{Names: []string{"a"}}, "1 names for 3 members"},
		{append(stores(2), minimal{memlock.New()}), &quorum.Options{MemberTimeout: time.Hour / 2}, "no TTL is allowed"},
		{stores(3), &quorum.Options{MemberTimeout: math.MaxInt64}, "no TTL is allowed"},
	} {
		s, err := quorum.New(c.members, c.opts)
		if err == nil || !strings.Contains(err.Error(), c.reason) {
			t.Errorf("%d members: want an error with %q, got %v, %v", len(c.members), c.reason, s, err)
		}
	}
}

// TestSameServerTwiceIsRejected: two members with different addresses reach one server, whose
// vote would count twice.
func TestSameServerTwiceIsRejected(t *testing.T) {
	all := fakeMembers(3)
	s, err := quorum.New([]driver.Store{conn{all[0]}, &conn{all[1]}, &conn{all[0]}}, &quorum.Options{Names: []string{"a:1", "b:1", "a:2"}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for range 2 {
		_, err := s.Acquire(t.Context(), request("x", time.Minute))
		if err == nil || !strings.Contains(err.Error(), "same server") ||
			!strings.Contains(err.Error(), "a:1") || !strings.Contains(err.Error(), "a:2") {
			t.Errorf("want an error that names a:1 and a:2, got: %v", err)
		}
		if errors.Is(err, driver.ErrUnreachable) || errors.Is(err, driver.ErrHeld) {
			t.Errorf("want an error that is not worth a retry, got: %v", err)
		}
	}
	s.Close()
	for i, c := range all {
		if left := c.locks(); len(left) > 0 {
			t.Errorf("member %d holds %q", i+1, left)
		}
	}
}

// TestSameServerIsRejectedWhenItReturns: one of two such members could not be reached at first.
func TestSameServerIsRejectedWhenItReturns(t *testing.T) {
	all := fakeMembers(3)
	other := &unidentified{conn{all[0]}, make(chan struct{})}
	s, err := quorum.New([]driver.Store{conn{all[0]}, conn{all[1]}, other}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	grant := mustAcquire(t, s, request("x", time.Minute)) // by two servers of three
	if err := s.Release(t.Context(), grant); err != nil {
		t.Fatal(err)
	}
	close(other.back)
	for deadline := time.Now().Add(5 * time.Second); ; {
		grant, err := s.Acquire(t.Context(), request("x", time.Minute))
		if err != nil {
			if !strings.Contains(err.Error(), "member 1 and member 3 are the same server") {
				t.Errorf("want an error about the same server, got: %v", err)
			}
			return
		}
		_ = s.Release(t.Context(), grant)
		if time.Now().After(deadline) {
			t.Fatal("one server votes twice, which was not noticed")
		}
	}
}

// TestSameServerRenewsOnce: one of two members that are one server could not be reached at first.
// When it returns, it does not count for a renewal beside the other.
func TestSameServerRenewsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := fakeMembers(3)
		other := &unidentified{conn{all[0]}, make(chan struct{})}
		s, err := quorum.New([]driver.Store{conn{all[0]}, conn{all[1]}, other}, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		grant := mustAcquire(t, s, request("x", time.Minute)) // by two servers of three
		close(other.back)
		all[1].restartEmpty()
		if errs := s.Renew(t.Context(), []driver.Grant{grant}); errs == nil {
			t.Error("a lock that one server of two holds was renewed")
		}
	})
}

func TestTraitsOfTheWeakestMember(t *testing.T) {
	s, err := quorum.New(stores(5), &quorum.Options{MemberTimeout: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	want := driver.Traits{
		Store:      "quorum of 5 memory",
		Fencing:    driver.FencingStrong,
		TokenStep:  tokenStep,
		SplitVotes: true,
		OneMachine: true,
		MinTTL:     400 * time.Millisecond,
		MaxTTL:     driver.MaxTTL,
	}
	if got := s.Traits(); got != want {
		t.Errorf("want %+v, got %+v", want, got)
	}
	mixed := stores(3)
	mixed[1] = minimal{memlock.New()}
	s, err = quorum.New(mixed, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	want = driver.Traits{
		Store:       "quorum of 3 stores",
		Fencing:     driver.FencingNone, // one member cannot be given a token
		TokenStep:   1,
		SplitVotes:  true,
		OneMachine:  true, // two members exclude only processes of their machine
		MinTTL:      time.Second,
		MaxTTL:      time.Hour,
		Granularity: time.Second,
	}
	if got := s.Traits(); got != want {
		t.Errorf("want %+v, got %+v", want, got)
	}
	if err := s.Break(t.Context(), "x", 1); !errors.Is(err, driver.ErrUnsupported) {
		t.Errorf("Break without tokens that members agree on: want ErrUnsupported, got: %v", err)
	}
}

// minimal is a store without extensions.
type minimal struct{ driver.Store }

func (minimal) Traits() driver.Traits {
	return driver.Traits{Store: "minimal", Fencing: driver.FencingStrong, MinTTL: time.Second, MaxTTL: time.Hour,
		Granularity: time.Second, SurvivesRestart: true}
}

// reacting is a member with a Reaction, which may queue its waiters.
type reacting struct {
	*memlock.Store
	reaction time.Duration
	queues   bool
}

func (r reacting) Traits() driver.Traits {
	t := r.Store.Traits()
	t.Reaction, t.Queues = r.reaction, r.queues
	return t
}

// TestReactionIsThatOfAMajority: a waiter is woken when a majority of the members is released, and
// polls if it cannot watch a majority. The order of the members does not matter.
func TestReactionIsThatOfAMajority(t *testing.T) {
	const fast, slow, polled = 300 * time.Microsecond, 250 * time.Millisecond, 500 * time.Millisecond
	watched := func(reaction time.Duration) driver.Store { return reacting{memlock.New(), reaction, false} }
	queued := func() driver.Store { return reacting{memlock.New(), fast, true} }
	for name, c := range map[string]struct {
		members []driver.Store
		want    time.Duration
	}{
		"two slow":            {[]driver.Store{watched(fast), watched(slow), watched(slow)}, slow},
		"two slow at first":   {[]driver.Store{watched(slow), watched(slow), watched(fast)}, slow},
		"one slow":            {[]driver.Store{watched(slow), watched(fast), watched(fast)}, fast},
		"two unknown":         {[]driver.Store{watched(0), watched(slow), watched(0)}, 0},
		"two queue":           {[]driver.Store{watched(fast), queued(), queued()}, polled},
		"one queues":          {[]driver.Store{watched(fast), queued(), watched(fast)}, fast},
		"no member can watch": {[]driver.Store{minimal{memlock.New()}, minimal{memlock.New()}, minimal{memlock.New()}}, polled},
	} {
		s, err := quorum.New(c.members, nil)
		if err != nil {
			t.Fatal(err)
		}
		if got := s.Traits().Reaction; got != c.want {
			t.Errorf("%s: Reaction %v; want %v", name, got, c.want)
		}
		s.Close()
	}
}

// TestShortestTTLCanBeLocked: the shortest TTL leaves time for the drift of the clocks, also if the
// MemberTimeout is shorter than that.
func TestShortestTTLCanBeLocked(t *testing.T) {
	for _, timeout := range []time.Duration{time.Microsecond, 500 * time.Microsecond, time.Millisecond, time.Second} {
		synctest.Test(t, func(t *testing.T) {
			s := openWith(t, fakeMembers(3), &quorum.Options{MemberTimeout: timeout})
			settle(t, s)
			if grant, err := s.Acquire(t.Context(), request("x", s.Traits().MinTTL)); err != nil || grant.TTL <= 0 {
				t.Errorf("MemberTimeout %v: Acquire for %v: %+v, %v", timeout, s.Traits().MinTTL, grant, err)
			}
		})
	}
}

// TestMembersWithoutExtensionsWork: a quorum needs no extensions of its members.
func TestMembersWithoutExtensionsWork(t *testing.T) {
	s, err := quorum.New([]driver.Store{minimal{memlock.New()}, minimal{memlock.New()}, minimal{memlock.New()}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ctx := t.Context()
	grant := mustAcquire(t, s, request("x", time.Minute))
	_, err = s.Acquire(ctx, request("x", time.Minute))
	if held, ok := errors.AsType[*driver.HeldError](err); !ok || held.Remaining < 50*time.Second {
		t.Errorf("want a *HeldError with a minute left, got: %v", err)
	}
	if _, err := s.Watch(ctx, request("x", time.Minute), func() {}); !errors.Is(err, driver.ErrUnsupported) {
		t.Errorf("Watch: want ErrUnsupported, got: %v", err)
	}
	for _, err := range s.List(ctx, "") {
		if !errors.Is(err, driver.ErrUnsupported) {
			t.Errorf("List: want ErrUnsupported, got: %v", err)
		}
	}
	if errs := s.Renew(ctx, []driver.Grant{grant}); errs != nil {
		t.Errorf("Renew: %v", errs)
	}
	if err := s.Release(ctx, grant); err != nil {
		t.Errorf("Release: %v", err)
	}
}

func TestCallsAfterCloseReturnErrClosed(t *testing.T) {
	s, err := quorum.New(stores(3), nil)
	if err != nil {
		t.Fatal(err)
	}
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
	conn
	back chan struct{}
}

func (a *unidentified) Identify(ctx context.Context) (string, error) {
	select {
	case <-a.back:
		return a.conn.Identify(ctx)
	default:
		return "", errRefused
	}
}

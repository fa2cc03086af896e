package quorum_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/internal/backoff"
	"github.com/dlock-go/dlock/memlock"
	"github.com/dlock-go/dlock/quorum"
)

// TestListIsByMajority: List leaves out what only a minority holds, which is an attempt that is
// under way or being undone.
func TestListIsByMajority(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := fakeMembers(5)
		s := open(t, all)
		settle(t, s)
		for _, c := range all[:2] {
			mustAcquire(t, c.server, request("minority", time.Hour))
		}
		for i, c := range all {
			req := request("split", time.Hour)
			req.Holder.PID = i + 1
			mustAcquire(t, c.server, req)
		}
		all[4].set(mute)
		all[3].set(gone)
		grant := mustAcquire(t, s, request("held", time.Hour))
		synctest.Wait()
		for round, want := range []string{"held", "held", "error"} {
			var got []string
			start := time.Now()
			for info, err := range s.List(t.Context(), "") {
				if err != nil {
					if !errors.Is(err, driver.ErrUnreachable) {
						t.Errorf("want ErrUnreachable, got: %v", err)
					}
					got = append(got, "error")
					continue
				}
				got = append(got, info.Name)
				if info.Token != grant.Token || info.Remaining < 59*time.Minute {
					t.Errorf("granted with token %d, listed is %+v", grant.Token, info)
				}
			}
			if fmt.Sprint(got) != fmt.Sprint([]string{want}) {
				t.Errorf("round %d: want %s alone, got %q", round, want, got)
			}
			if took := time.Since(start); want != "error" && took > 2*quorum.DefaultMemberTimeout {
				t.Errorf("a member that hangs held the list up for %v", took)
			}
			if round == 1 {
				all[0].set(mute)
			}
		}
	})
}

// slowLister is a member that searches for long before it finds the first lock.
type slowLister struct {
	conn
	takes time.Duration
}

func (s slowLister) List(ctx context.Context, prefix string) iter.Seq2[driver.Info, error] {
	return func(yield func(driver.Info, error) bool) {
		if err := backoff.Sleep(ctx, s.takes); err != nil {
			yield(driver.Info{}, err)
			return
		}
		s.conn.List(ctx, prefix)(yield)
	}
}

// Find answers at once.
func (s slowLister) Find(ctx context.Context, _ string) (info driver.Info, held bool, err error) {
	return info, false, s.call(ctx, "Find", func(context.Context, *memlock.Store) error { return nil })
}

// TestListWaitsForMembersThatAnswer: List waits for a member without progress as long as the
// member answers other calls: Identify, or Find where it cannot tell its identity.
func TestListWaitsForMembersThatAnswer(t *testing.T) {
	for name, member := range map[string]func(slowLister) driver.Store{
		"Identify": func(s slowLister) driver.Store {
			return struct {
				driver.Store
				driver.Lister
				driver.Identifier
			}{s, s, s}
		},
		"Find": func(s slowLister) driver.Store {
			return struct {
				driver.Store
				driver.Lister
				driver.Finder
			}{s, s, s}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { listWaits(t, member) })
		})
	}
}

func listWaits(t *testing.T, member func(slowLister) driver.Store) {
	all := fakeMembers(3)
	members := make([]driver.Store, len(all))
	for i, c := range all {
		members[i] = member(slowLister{conn{c}, 10 * time.Minute})
	}
	s, err := quorum.New(members, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	mustAcquire(t, s, request("held", time.Hour))
	var got []string
	for info, err := range s.List(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, info.Name)
	}
	if fmt.Sprint(got) != "[held]" {
		t.Errorf("want the lock that is held, got %q", got)
	}
	for _, c := range all {
		c.set(mute)
	}
	start := time.Now()
	for _, err := range s.List(t.Context(), "") {
		if !errors.Is(err, driver.ErrUnreachable) {
			t.Errorf("no member answers: want ErrUnreachable, got: %v", err)
		}
	}
	if took := time.Since(start); took > time.Minute {
		t.Errorf("List took %v although no member answers", took)
	}
}

// TestBreakIsByMajority: Break breaks the lock at a majority. The holder finds out, and nothing
// is left at the members.
func TestBreakIsByMajority(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := fakeMembers(5)
		s, other := open(t, all), open(t, all)
		all[1].set(gone)
		grant := mustAcquire(t, s, request("x", time.Hour))
		all[1].set(up)
		synctest.Wait()
		if err := other.Break(t.Context(), "x", grant.Token+s.Traits().TokenStep); !errors.Is(err, driver.ErrNotHeld) {
			t.Errorf("with another token: want ErrNotHeld, got: %v", err)
		}
		if err := other.Break(t.Context(), "x", grant.Token); err != nil {
			t.Fatal(err)
		}
		if errs := s.Renew(t.Context(), []driver.Grant{grant}); len(errs) != 1 || !errors.Is(errs[0], driver.ErrNotHeld) {
			t.Errorf("want one ErrNotHeld, got: %v", errs)
		}
		synctest.Wait()
		for i, c := range all {
			if left := c.locks(); len(left) > 0 {
				t.Errorf("after Break member %d holds %q", i+1, left)
			}
		}
	})
}

// diagnosing is a member with findings.
type diagnosing struct {
	*memlock.Store
	findings []driver.Finding
	err      error
}

func (c diagnosing) Diagnose(context.Context) ([]driver.Finding, error) { return c.findings, c.err }

func TestDiagnoseReportsQuorumAndMembers(t *testing.T) {
	eviction := driver.Finding{Check: "eviction", Level: driver.LevelProblem, Message: "allkeys-lru"}
	members := []driver.Store{
		diagnosing{memlock.New(), []driver.Finding{eviction}, nil}, memlock.New(), diagnosing{Store: memlock.New(), err: errRefused},
	}
	s, err := quorum.New(members, &quorum.Options{Names: []string{"a:1", "b:1", "c:1"}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	findings, err := s.Diagnose(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	want := []struct {
		check   string
		level   driver.Level
		message string // a part of it
	}{
		{"members", driver.LevelWarning, "2 of 3 members answer"},
		{"servers", driver.LevelOK, ""},
		{"tokens", driver.LevelOK, "strong"},
		{"restart", driver.LevelWarning, "longest TTL"},
		{"eviction", driver.LevelProblem, "a:1: allkeys-lru"},
		{"reachable", driver.LevelWarning, "c:1: "},
	}
	if len(findings) != len(want) {
		t.Fatalf("want %d findings, got %+v", len(want), findings)
	}
	for i, w := range want {
		if f := findings[i]; f.Check != w.check || f.Level != w.level || !strings.Contains(f.Message, w.message) {
			t.Errorf("want %+v, got %+v", w, f)
		}
	}
	members[0] = diagnosing{Store: memlock.New(), err: errRefused}
	s, err = quorum.New(members, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.Diagnose(t.Context()); !errors.Is(err, driver.ErrUnreachable) {
		t.Errorf("one member of three answers: want ErrUnreachable, got: %v", err)
	}
}

// durable is a member that remembers its locks, with findings.
type durable struct{ diagnosing }

func (d durable) Traits() driver.Traits {
	traits := d.Store.Traits()
	traits.SurvivesRestart = true
	return traits
}

// A member that forgets its locks as it is configured makes the quorum forget them.
func TestDiagnoseOfARestartFollowsTheMembers(t *testing.T) {
	forgets := driver.Finding{Check: "persistence", Level: driver.LevelWarning, Breaks: driver.PromiseRestart}
	for _, test := range []struct {
		findings []driver.Finding
		want     driver.Level
	}{{nil, driver.LevelOK}, {[]driver.Finding{forgets}, driver.LevelWarning}} {
		var members []driver.Store
		for range 3 {
			members = append(members, durable{diagnosing{Store: memlock.New(), findings: test.findings}})
		}
		s, err := quorum.New(members, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		findings, err := s.Diagnose(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range findings {
			if f.Check == "restart" && f.Level != test.want {
				t.Errorf("members with %v: %+v; want %v", test.findings, f, test.want)
			}
		}
	}
}

// remote is a member that processes of all machines reach.
type remote struct{ *memlock.Store }

func (r remote) Traits() driver.Traits {
	t := r.Store.Traits()
	t.OneMachine = false
	return t
}

// TestDiagnoseFindsMembersOfOneMachine: if each machine has its own copy of one member, processes
// of two machines can have a majority each.
func TestDiagnoseFindsMembersOfOneMachine(t *testing.T) {
	for local := range 4 {
		var members []driver.Store
		for i := range 3 {
			if i < local {
				members = append(members, memlock.New())
			} else {
				members = append(members, remote{memlock.New()})
			}
		}
		s, err := quorum.New(members, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if got := s.Traits().OneMachine; got != (local > 0) {
			t.Errorf("%d of 3 members are of one machine: OneMachine is %v", local, got)
		}
		findings, err := s.Diagnose(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		found := slices.ContainsFunc(findings, func(f driver.Finding) bool {
			return f.Check == "machines" && f.Level == driver.LevelProblem && f.Breaks == driver.PromiseExclusion
		})
		if want := local == 1 || local == 2; found != want {
			t.Errorf("%d of 3 members are of one machine: found %v, want %v, in %+v", local, found, want, findings)
		}
	}
}

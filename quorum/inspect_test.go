package quorum_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/memlock"
	"github.com/dlock-go/dlock/quorum"
)

// TestListIsByMajority: what a minority holds is an attempt that is being made or
// undone, and no lock.
func TestListIsByMajority(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := cells(5)
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

// slow is a member that has a lot to look through before it finds the first lock.
type slow struct {
	link
	takes time.Duration
}

func (s slow) List(ctx context.Context, prefix string) iter.Seq2[driver.Info, error] {
	return func(yield func(driver.Info, error) bool) {
		if err := pause(ctx, s.takes); err != nil {
			yield(driver.Info{}, err)
			return
		}
		s.link.List(ctx, prefix)(yield)
	}
}

// TestListWaitsForMembersThatAnswer: who is silent because of much work is waited
// for, as long as it answers something else.
func TestListWaitsForMembersThatAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := cells(3)
		members := make([]driver.Store, len(all))
		for i, c := range all {
			members[i] = slow{link{c}, 10 * time.Minute}
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
				t.Errorf("nobody answers: want ErrUnreachable, got: %v", err)
			}
		}
		if took := time.Since(start); took > time.Minute {
			t.Errorf("it took %v to find out that nobody answers", took)
		}
	})
}

// TestBreakIsByMajority also shows that the holder finds out, and leaves nothing.
func TestBreakIsByMajority(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := cells(5)
		s, other := open(t, all), open(t, all)
		all[1].set(gone)
		grant := mustAcquire(t, s, request("x", time.Hour))
		all[1].set(up)
		synctest.Wait()
		if err := other.Break(t.Context(), "x", grant.Token+1); !errors.Is(err, driver.ErrNotHeld) {
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
				t.Errorf("the lock is broken, and member %d holds %q", i+1, left)
			}
		}
	})
}

// candid is a member that has something to say about itself.
type candid struct {
	*memlock.Store
	findings []driver.Finding
	err      error
}

func (c candid) Diagnose(context.Context) ([]driver.Finding, error) { return c.findings, c.err }

func TestDiagnose(t *testing.T) {
	eviction := driver.Finding{Check: "eviction", Level: driver.LevelProblem, Message: "allkeys-lru"}
	members := []driver.Store{
		candid{memlock.New(), []driver.Finding{eviction}, nil}, memlock.New(), candid{Store: memlock.New(), err: errRefused},
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
	members[0] = candid{Store: memlock.New(), err: errRefused}
	s, err = quorum.New(members, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.Diagnose(t.Context()); !errors.Is(err, driver.ErrUnreachable) {
		t.Errorf("one member of three answers: want ErrUnreachable, got: %v", err)
	}
}

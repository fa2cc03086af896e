package redlock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// TestListIsByMajority: List leaves out what only a minority holds, which is an attempt that is
// under way or being undone.
func TestListIsByMajority(t *testing.T) {
	bubble(t, 5, func(t *testing.T, all []*fakeMember, s *Store) {
		settle(t, s)
		for _, c := range all[:2] {
			c.take(t, request("minority", time.Hour), 0)
		}
		for i, c := range all {
			req := request("split", time.Hour)
			req.Holder.PID = i + 1
			c.take(t, req, 0)
		}
		all[4].set(mute)
		all[3].set(gone)
		grant := mustAcquire(t, s, request("held", time.Hour))
		synctest.Wait()
		for round, want := range []string{"held", "held", "error"} {
			var got []string
			start := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			for info, err := range s.List(ctx, "") {
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
			cancel()
			if fmt.Sprint(got) != fmt.Sprint([]string{want}) {
				t.Errorf("round %d: want %s alone, got %q", round, want, got)
			}
			if took := time.Since(start); want != "error" && took > 2*DefaultMemberTimeout {
				t.Errorf("a member that hangs held the list up for %v", took)
			}
			if round == 1 {
				all[0].set(mute)
			}
		}
	})
}

// TestBreakIsByMajority: Break breaks the lock at a majority. The holder finds out, and nothing
// is left at the members.
func TestBreakIsByMajority(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := fakeMembers(5)
		s, other := start(t, all), start(t, all)
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
		checkFree(t, all, "after Break")
	})
}

func TestDiagnoseReportsMembers(t *testing.T) {
	all := fakeMembers(3)
	all[0].findings = []driver.Finding{{Check: "eviction", Level: driver.LevelProblem, Message: "allkeys-lru"}}
	all[2].set(gone)
	s := start(t, all)
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
		{"restart", driver.LevelOK, "remembers"},
		{"eviction", driver.LevelProblem, "member 1: allkeys-lru"},
		{"reachable", driver.LevelWarning, "member 3: "},
	}
	if len(findings) != len(want) {
		t.Fatalf("want %d findings, got %+v", len(want), findings)
	}
	for i, w := range want {
		if f := findings[i]; f.Check != w.check || f.Level != w.level || !strings.Contains(f.Message, w.message) {
			t.Errorf("want %+v, got %+v", w, f)
		}
	}
	all[0].findings = []driver.Finding{{Check: "persistence", Level: driver.LevelWarning, Breaks: driver.PromiseRestart}}
	findings, err = s.Diagnose(t.Context())
	if err != nil || findings[2].Check != "restart" || findings[2].Level != driver.LevelWarning {
		t.Errorf("a member forgets its locks in a crash: %+v, %v; want a warning", findings, err)
	}
	all[0].set(gone)
	if _, err := s.Diagnose(t.Context()); !errors.Is(err, driver.ErrUnreachable) {
		t.Errorf("one member of three answers: want ErrUnreachable, got: %v", err)
	}
}

package quorum_test

import (
	"context"
	"errors"
	"iter"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/quorum"
)

// showsLast is a member that identifies a lock by the last token of its span, as Redis does.
type showsLast struct {
	conn
	spans map[string]uint64 // of the holders of the names
}

func (m showsLast) Traits() driver.Traits {
	t := m.conn.Traits()
	t.Store = "Redis"
	return t
}

func (m showsLast) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	grant, err := m.conn.Acquire(ctx, req)
	if held, ok := errors.AsType[*driver.HeldError](err); ok {
		held.Token += m.spans[req.Name] - 1
	}
	if err == nil {
		m.spans[req.Name] = max(1, req.Span)
	}
	return grant, err
}

func (m showsLast) List(ctx context.Context, prefix string) iter.Seq2[driver.Info, error] {
	return func(yield func(driver.Info, error) bool) {
		for info, err := range m.conn.List(ctx, prefix) {
			info.Token += max(1, m.spans[info.Name]) - 1
			if !yield(info, err) {
				return
			}
		}
	}
}

func (m showsLast) Break(ctx context.Context, name string, token uint64) error {
	return m.conn.Break(ctx, name, token-max(1, m.spans[name])+1)
}

// TestMixedMembersShowTheHolder: members that identify a lock by the first and by the last token
// of its span agree on its holder.
func TestMixedMembersShowTheHolder(t *testing.T) {
	for _, span := range []uint64{1, 100} {
		synctest.Test(t, func(t *testing.T) {
			all := fakeMembers(3)
			members := []driver.Store{showsLast{conn{all[0]}, make(map[string]uint64)}, conn{all[1]}, conn{all[2]}}
			s, err := quorum.New(members, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			req := request("x", time.Minute)
			req.Span = span
			mustAcquire(t, s, req)
			synctest.Wait()
			all[2].set(gone)
			_, err = s.Acquire(t.Context(), request("x", time.Minute))
			held, ok := errors.AsType[*driver.HeldError](err)
			if !ok || held.Token == 0 {
				t.Errorf("span %d: two members of three refuse: %v, want the holder's token", span, err)
			}
			info, found, err := s.Find(t.Context(), "x")
			if !found {
				t.Errorf("span %d: two members of three hold the lock, and it is not shown: %v", span, err)
			} else if err := s.Break(t.Context(), "x", info.Token); err != nil {
				t.Errorf("span %d: Break: %v", span, err)
			}
		})
	}
}

// TestRepairSetsAsideTheSpan: a repaired member knows all tokens of the span, like one that never
// forgot.
func TestRepairSetsAsideTheSpan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := fakeMembers(5)
		s := open(t, all)
		req := request("x", time.Minute)
		req.Span = 100
		grant := mustAcquire(t, s, req)
		synctest.Wait()
		for _, some := range [][]*fakeMember{all[3:], all[:2]} {
			for _, c := range some {
				c.restartEmpty()
			}
			if errs := s.Renew(t.Context(), []driver.Grant{grant}); errs != nil {
				t.Fatal(errs)
			}
			synctest.Wait()
		}
		for i, c := range all {
			if known := c.knownToken("x"); known < lastToken(grant) {
				t.Errorf("member %d knows token %d, the span ends at %d", i+1, known, lastToken(grant))
			}
		}
		if err := s.Release(t.Context(), grant); err != nil {
			t.Fatal(err)
		}
		all[2].set(gone) // the only one that never forgot
		if next := mustAcquire(t, open(t, all), request("x", time.Minute)); next.Token <= lastToken(grant) {
			t.Errorf("token %d was granted after %d to %d", next.Token, grant.Token, lastToken(grant))
		}
	})
}

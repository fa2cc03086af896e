package quorum_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/driver/attempts"
	"github.com/dlock-go/dlock/drivertest"
	"github.com/dlock-go/dlock/internal/backoff"
	"github.com/dlock-go/dlock/memlock"
	"github.com/dlock-go/dlock/quorum"
)

// lateMember is a member whose calls may take long to reach its server. The caller leaves when
// its context ends, and the call is still carried out. As every store must, the member undoes
// an acquisition that is carried out after its release.
type lateMember struct {
	*memlock.Store
	log   *attempts.Log
	loses func() bool          // it never learns the end of a call whose caller has left
	delay func() time.Duration // of each call
	lag   atomic.Pointer[lag]  // nil if nothing is held
}

// lag holds calls until over is closed.
type lag struct {
	over chan struct{}
	held sync.WaitGroup // calls that have not been carried out
}

func newLateMember(server *memlock.Store, loses func() bool, delay func() time.Duration) *lateMember {
	m := &lateMember{Store: server, loses: loses, delay: delay}
	m.log = attempts.New(func(ctx context.Context, name string, owner driver.Owner) error {
		return server.Release(ctx, driver.Grant{Name: name, Owner: owner})
	})
	return m
}

// send carries out f after a delay. If the context ends first, send calls left, and then
// ended when f has been carried out.
func (m *lateMember) send(ctx context.Context, left func() (ended func(bool)), f func(ctx context.Context)) error {
	done := make(chan struct{})
	lag := m.lag.Load()
	if lag != nil {
		lag.held.Add(1)
	}
	time.AfterFunc(m.delay(), func() {
		if lag != nil {
			<-lag.over
			defer lag.held.Done()
		}
		f(context.WithoutCancel(ctx))
		close(done)
	})
	select {
	case <-done:
		return nil
	case <-ctx.Done():
	}
	ended := left()
	if m.loses() {
		ended(false)
		return context.Cause(ctx)
	}
	go func() {
		<-done
		ended(true)
	}()
	return context.Cause(ctx)
}

func ignoreEnd() func(bool) { return func(bool) {} }

func (m *lateMember) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	type outcome struct {
		grant driver.Grant
		err   error
	}
	result := make(chan outcome, 1)
	err := m.send(ctx, func() func(bool) { return m.log.Leave(req.Name, req.Owner) }, func(ctx context.Context) {
		grant, err := m.Store.Acquire(ctx, req)
		result <- outcome{grant, err}
	})
	if err != nil {
		return driver.Grant{}, err
	}
	o := <-result
	return o.grant, o.err
}

func (m *lateMember) Renew(ctx context.Context, grants []driver.Grant) []error {
	result := make(chan []error, 1)
	if err := m.send(ctx, ignoreEnd, func(ctx context.Context) { result <- m.Store.Renew(ctx, grants) }); err != nil {
		errs := make([]error, len(grants))
		for i := range errs {
			errs[i] = err
		}
		return errs
	}
	return <-result
}

func (m *lateMember) Release(ctx context.Context, grant driver.Grant) error {
	released, err := m.log.Settle(ctx, grant)
	if err != nil {
		return err
	}
	defer released()
	result := make(chan error, 1)
	if err := m.send(ctx, ignoreEnd, func(ctx context.Context) { result <- m.Store.Release(ctx, grant) }); err != nil {
		return err
	}
	return <-result
}

// TestLateAcquisitionIsUndone: an acquisition that reaches a member after the quorum has
// released the lock leaves nothing there.
func TestLateAcquisitionIsUndone(t *testing.T) {
	for _, loses := range []bool{false, true} {
		for _, late := range []time.Duration{60 * time.Millisecond, 500 * time.Millisecond, 5 * time.Second} {
			for _, slow := range []int{2, 3} { // of five: a lock is granted, or not
				t.Run(fmt.Sprintf("%d members, %v, lost %v", slow, late, loses), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { lateAcquisition(t, slow, late, loses) })
				})
			}
		}
	}
}

func lateAcquisition(t *testing.T, slow int, late time.Duration, loses bool) {
	servers, members := make([]*memlock.Store, 5), make([]driver.Store, 5)
	var delay atomic.Int64
	for i := range members {
		servers[i] = memlock.New()
		members[i] = servers[i]
		if i < slow {
			m := newLateMember(servers[i], func() bool { return loses }, func() time.Duration { return time.Duration(delay.Load()) })
			defer m.log.Close()
			members[i] = m
		}
	}
	s, err := quorum.New(members, nil)
	if err != nil {
		t.Fatal(err)
	}
	settle(t, s)
	delay.Store(int64(late))
	req := request("x", time.Hour)
	grant, err := s.Acquire(t.Context(), req)
	if (err == nil) != (slow == 2) {
		t.Fatalf("Acquire with %d of 5 members late: %v", slow, err)
	}
	delay.Store(0)
	if err != nil {
		grant = driver.Grant{Name: req.Name, Owner: req.Owner}
	}
	if err := s.Release(t.Context(), grant); err != nil && !errors.Is(err, driver.ErrNotHeld) && !errors.Is(err, driver.ErrUnreachable) {
		t.Errorf("Release: %v", err)
	}
	time.Sleep(2*late + 2*time.Second)
	for i, server := range servers {
		for info := range server.List(t.Context(), "") {
			t.Errorf("member %d holds %q", i+1, info.Name)
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// retrying repeats calls of unknown outcome and split votes, as a waiter of dlock does. If only three
// members of five hold a lock and one of them is late, its release has an unknown outcome, and a contender
// finds no majority for any holder.
type retrying struct{ *quorum.Store }

const retries = 20 // enough for a member that is late in a fourth of all calls

func (p retrying) Acquire(ctx context.Context, req driver.Request) (grant driver.Grant, err error) {
	for range retries {
		grant, err = p.Store.Acquire(ctx, req)
		held, refused := errors.AsType[*driver.HeldError](err)
		if !refused || held.Token != 0 || backoff.Sleep(ctx, held.Remaining) != nil {
			break
		}
	}
	return grant, err
}

func (p retrying) Renew(ctx context.Context, grants []driver.Grant) (errs []error) {
	for range retries {
		if errs = p.Store.Renew(ctx, grants); !errors.Is(errors.Join(errs...), driver.ErrUnreachable) {
			break
		}
	}
	return errs
}

func (p retrying) Release(ctx context.Context, grant driver.Grant) (err error) {
	for i := range retries {
		switch err = p.Store.Release(ctx, grant); {
		case i > 0 && errors.Is(err, driver.ErrNotHeld): // the first call released it
			return nil
		case !errors.Is(err, driver.ErrUnreachable):
			return err
		}
	}
	return err
}

// TestConformanceWithLateMember runs the kit on a quorum with a member that often answers too late.
// If the member carries a Break or a renewal out late, what others see then is not what these clauses
// want (see docs/stores/redlock.md): in three runs of a hundred. Only for them the kit runs again, twice
// at most.
func TestConformanceWithLateMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		err := checkWithLateMember(t)
		for again := 0; again < 2 && onlyIn(err, "break-holder", "break-token", "break-step", "token-shown", "list-renewed", "client-limit"); again++ {
			t.Logf("once more, because of: %v", err)
			err = checkWithLateMember(t)
		}
		if err != nil {
			t.Error(err)
		}
	})
}

// onlyIn reports whether a run of the kit failed in no other clauses.
func onlyIn(err error, clauses ...string) bool {
	joined, failed := errors.AsType[interface {
		error
		Unwrap() []error
	}](err)
	return failed && !slices.ContainsFunc(joined.Unwrap(), func(err error) bool {
		v, ok := errors.AsType[*drivertest.Violation](err)
		return !ok || !slices.Contains(clauses, v.Clause)
	})
}

func checkWithLateMember(t *testing.T) error {
	const timeout = 300 * time.Millisecond
	servers := make([]*memlock.Store, 5)
	for i := range servers {
		servers[i] = memlock.New()
	}
	connect := func() (all []*lateMember) {
		for i, server := range servers {
			m := newLateMember(server, func() bool { return rand.N(2) == 0 }, func() time.Duration {
				if i == 2 && rand.N(4) == 0 {
					return timeout/2 + rand.N(2*timeout)
				}
				return 5 * time.Millisecond // so that a clause that tries for a while tries less often
			})
			t.Cleanup(func() { _ = m.log.Close() })
			all = append(all, m)
		}
		return all
	}
	quorumOf := func(all []*lateMember) (driver.Store, error) {
		members := make([]driver.Store, len(all))
		for i, m := range all {
			members[i] = m
		}
		s, err := quorum.New(members, &quorum.Options{MemberTimeout: timeout})
		return retrying{s}, err
	}
	members := connect()
	return drivertest.Check(t.Context(), drivertest.Config{
		Open: func(context.Context) (driver.Store, error) { return quorumOf(members) },
		TTL:  4 * timeout,
		Delayed: func(context.Context) (driver.Store, func() func(), error) {
			slow := connect() // for this clause alone
			s, err := quorumOf(slow)
			return s, func() func() {
				lag := &lag{over: make(chan struct{})}
				for _, m := range slow {
					m.lag.Store(lag)
				}
				return func() {
					for _, m := range slow {
						m.lag.Store(nil)
					}
					close(lag.over)
					lag.held.Wait()
				}
			}, err
		},
		Leftovers: func(ctx context.Context) (left []string, err error) {
			for i, server := range servers {
				for info := range server.List(ctx, "") {
					left = append(left, fmt.Sprintf("%q at member %d", info.Name, i+1))
				}
			}
			return left, nil
		},
	})
}

// TestMembersWithoutAMajorityAreUnreachable: one member renews, one does not hold the lock, and one
// promises too little. No member failed, and the outcome is still unknown.
func TestMembersWithoutAMajorityAreUnreachable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, all, grant := acquireWithShortPromise(t)
		defer s.Close()
		all[1].restartEmpty()
		errs := s.Renew(t.Context(), []driver.Grant{grant})
		if errs == nil || !errors.Is(errs[0], driver.ErrUnreachable) || errors.Is(errs[0], driver.ErrNotHeld) {
			t.Errorf("want ErrUnreachable and not ErrNotHeld, got: %v", errs)
		}
	})
}

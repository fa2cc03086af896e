package quorum_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dlock-go/dlock/driver"
	"github.com/dlock-go/dlock/drivertest"
	"github.com/dlock-go/dlock/internal/attempts"
	"github.com/dlock-go/dlock/memlock"
	"github.com/dlock-go/dlock/quorum"
)

// tardy is a member whose calls may take long to reach its server. A caller does not wait
// for longer than its context lasts; the call is carried out all the same. As every store
// must, it undoes an acquisition that is carried out after its release.
type tardy struct {
	*memlock.Store
	log   *attempts.Log
	loses func() bool          // it never hears of a call whose caller has left
	delay func() time.Duration // of each call
	lag   atomic.Pointer[lag]  // nil if nothing is held
}

// lag holds calls until it is over.
type lag struct {
	over chan struct{}
	held sync.WaitGroup // calls that have not been carried out
}

func newTardy(server *memlock.Store, loses func() bool, delay func() time.Duration) *tardy {
	m := &tardy{Store: server, loses: loses, delay: delay}
	m.log = attempts.New(func(ctx context.Context, name string, owner driver.Owner) error {
		return server.Release(ctx, driver.Grant{Name: name, Owner: owner})
	})
	return m
}

// send has f carried out after a delay. If the context ends first, left is called, and what
// it returns when f has been carried out.
func (m *tardy) send(ctx context.Context, left func() (ended func(bool)), f func(ctx context.Context)) error {
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

func nobodyCares() func(bool) { return func(bool) {} }

func (m *tardy) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
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

func (m *tardy) Renew(ctx context.Context, grants []driver.Grant) []error {
	result := make(chan []error, 1)
	if err := m.send(ctx, nobodyCares, func(ctx context.Context) { result <- m.Store.Renew(ctx, grants) }); err != nil {
		errs := make([]error, len(grants))
		for i := range errs {
			errs[i] = err
		}
		return errs
	}
	return <-result
}

func (m *tardy) Release(ctx context.Context, grant driver.Grant) error {
	released, err := m.log.Settle(ctx, grant)
	if err != nil {
		return err
	}
	defer released()
	result := make(chan error, 1)
	if err := m.send(ctx, nobodyCares, func(ctx context.Context) { result <- m.Store.Release(ctx, grant) }); err != nil {
		return err
	}
	return <-result
}

// An acquisition that reaches a member after the quorum has released the lock leaves
// nothing there, whichever member it is and however late.
func TestLateAcquisitionAtAMember(t *testing.T) {
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
			m := newTardy(servers[i], func() bool { return loses }, func() time.Duration { return time.Duration(delay.Load()) })
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

// patient repeats calls of unknown outcome, as dlock does. A lock that only three members of
// five have, because the others were asked by somebody else first, is released with an unknown
// outcome if one of the three is late.
type patient struct{ *quorum.Store }

const patience = 20 // a member that is late in a fourth of all calls is not late for ever

func (p patient) Renew(ctx context.Context, grants []driver.Grant) (errs []error) {
	for range patience {
		if errs = p.Store.Renew(ctx, grants); !errors.Is(errors.Join(errs...), driver.ErrUnreachable) {
			break
		}
	}
	return errs
}

func (p patient) Release(ctx context.Context, grant driver.Grant) (err error) {
	for i := range patience {
		switch err = p.Store.Release(ctx, grant); {
		case i > 0 && errors.Is(err, driver.ErrNotHeld): // because of the first call
			return nil
		case !errors.Is(err, driver.ErrUnreachable):
			return err
		}
	}
	return err
}

// TestLateMember runs the kit on a quorum of which one member often answers too late.
func TestLateMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const timeout = 300 * time.Millisecond
		servers := make([]*memlock.Store, 5)
		for i := range servers {
			servers[i] = memlock.New()
		}
		connect := func() (all []*tardy) {
			for i, server := range servers {
				m := newTardy(server, func() bool { return rand.N(2) == 0 }, func() time.Duration {
					if i == 2 && rand.N(4) == 0 {
						return timeout/2 + rand.N(2*timeout)
					}
					return 100 * time.Microsecond // a clause that tries for a while goes on in virtual time
				})
				t.Cleanup(func() { _ = m.log.Close() })
				all = append(all, m)
			}
			return all
		}
		quorumOf := func(all []*tardy) (driver.Store, error) {
			members := make([]driver.Store, len(all))
			for i, m := range all {
				members[i] = m
			}
			s, err := quorum.New(members, &quorum.Options{MemberTimeout: timeout})
			return patient{s}, err
		}
		members := connect()
		err := drivertest.Check(t.Context(), drivertest.Config{
			Open: func(context.Context) (driver.Store, error) { return quorumOf(members) },
			TTL:  4 * timeout,
			Delayed: func(context.Context) (driver.Store, func() func(), error) {
				slow := connect() // which no other clause has
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
		if err != nil {
			t.Error(err)
		}
	})
}

// A renewal promises the TTL of its grant, also if its owner has asked again for less.
func TestAskingAgainForLessDoesNotShorten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := cells(5)
		s, rival := open(t, all), open(t, all)
		req := request("x", 10*time.Second)
		grant := mustAcquire(t, s, req)
		req.TTL = time.Second
		if again := mustAcquire(t, s, req); again.Token != grant.Token || again.TTL > time.Second {
			t.Errorf("asking again for a second: %+v after %+v", again, grant)
		}
		for range 2 {
			time.Sleep(grant.TTL - time.Millisecond)
			if _, err := rival.Acquire(t.Context(), request("x", time.Second)); !errors.Is(err, driver.ErrHeld) {
				t.Fatalf("the lock was promised for %v and lasts less: %v", grant.TTL, err)
			}
			if errs := s.Renew(t.Context(), []driver.Grant{grant}); errs != nil {
				t.Fatal(errs)
			}
		}
	})
}

// Answers that took longer than the lock lasts grant nothing.
func TestAnswersThatTakeLongerThanTheTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := cells(5)
		s := open(t, all)
		settle(t, s)
		far(all, 15*time.Millisecond)
		if grant, err := s.Acquire(t.Context(), request("x", 30*time.Millisecond)); !errors.Is(err, driver.ErrUnreachable) {
			t.Errorf("Acquire for 30 ms with answers after 30 ms: %+v, %v; want ErrUnreachable", grant, err)
		}
		synctest.Wait()
		freed(t, all, "after an attempt that took too long")
		if _, err := s.Acquire(t.Context(), request("x", 300*time.Millisecond)); err != nil {
			t.Errorf("Acquire for 300 ms: %v", err)
		}
	})
}

// brief is a member that promises less than it was asked for.
type brief struct{ link }

func (b brief) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	req.TTL /= 2
	return b.link.Acquire(ctx, req)
}

// A member that was not needed for the grant, and promises less than those that were, does
// not count for a renewal.
func TestBriefMemberDoesNotCountForARenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := cells(3)
		far(all[2:], time.Millisecond)
		s, err := quorum.New([]driver.Store{link{all[0]}, link{all[1]}, brief{link{all[2]}}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		settle(t, s)
		grant := mustAcquire(t, s, request("x", time.Minute))
		time.Sleep(time.Second) // the third has granted it too
		if errs := s.Renew(t.Context(), []driver.Grant{grant}); errs != nil {
			t.Fatal(errs)
		}
		all[1].set(gone)
		if errs := s.Renew(t.Context(), []driver.Grant{grant}); errs == nil || !errors.Is(errs[0], driver.ErrUnreachable) {
			t.Errorf("renewed for %v by two of three members, of which one promised half of it: %v", grant.TTL, errs)
		}
	})
}

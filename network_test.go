package dlock_test

import (
	"context"
	"fmt"
	"iter"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/dlock-go/dlock/driver"
)

// network stands between a client and a store, in virtual time. It delays, drops, repeats
// and so reorders calls, as its random source decides.
type network struct {
	inner   full
	granted func(driver.Grant) // is called with every grant; may be nil
	rates   rates

	mu     sync.Mutex
	random *rand.Rand
	cut    bool           // it drops all calls
	late   sync.WaitGroup // repetitions under way
	calls  int
}

// full is a store with all extensions that the core uses, except Finder and Diagnoser.
type full interface {
	driver.Store
	driver.Watcher
	driver.BatchAcquirer
	driver.Downgrader
	driver.Lister
	driver.Breaker
}

// rates are probabilities.
type rates struct {
	dropRequest, dropReply, repeat, slow float64
}

// fate is what happens to one call.
type fate struct {
	there, back time.Duration
	lostThere   bool
	lostBack    bool
	again       time.Duration // a repetition arrives that much later; 0 for none
}

func (n *network) decide() fate {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.calls++
	delay := func() time.Duration {
		if n.random.Float64() < n.rates.slow {
			return time.Duration(n.random.Int64N(int64(3 * time.Second)))
		}
		return time.Duration(n.random.Int64N(int64(2 * time.Millisecond)))
	}
	f := fate{there: delay(), back: delay()}
	f.lostThere = n.cut || n.random.Float64() < n.rates.dropRequest
	f.lostBack = n.random.Float64() < n.rates.dropReply
	if n.random.Float64() < n.rates.repeat {
		f.again = time.Duration(n.random.Int64N(int64(4 * time.Second)))
	}
	return f
}

func (n *network) setCut(cut bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cut = cut
}

// send sends a call, and returns its reply if it arrives. What was sent arrives even if the
// sender has given up meanwhile. Time is virtual.
func send[T any](n *network, ctx context.Context, call func(context.Context) T) (T, error) {
	f := n.decide()
	reply := make(chan T, 1)
	arrive := func(after time.Duration, answer bool) {
		n.late.Go(func() {
			<-time.After(after)
			result := call(context.Background())
			<-time.After(f.back)
			if answer {
				reply <- result
			}
		})
	}
	if !f.lostThere {
		arrive(f.there, !f.lostBack)
		if f.again > 0 {
			arrive(f.there+f.again, false)
		}
	}
	select {
	case result := <-reply:
		return result, nil
	case <-ctx.Done():
		var none T
		return none, fmt.Errorf("%w: %w", driver.ErrUnreachable, context.Cause(ctx))
	}
}

type answer[T any] struct {
	value T
	err   error
}

func (n *network) Acquire(ctx context.Context, req driver.Request) (driver.Grant, error) {
	a, err := send(n, ctx, func(ctx context.Context) answer[driver.Grant] {
		grant, err := n.inner.Acquire(ctx, req)
		if err == nil && n.granted != nil {
			n.granted(grant)
		}
		return answer[driver.Grant]{grant, err}
	})
	if err != nil {
		return driver.Grant{}, err
	}
	return a.value, a.err
}

func (n *network) AcquireAll(ctx context.Context, reqs []driver.Request) ([]driver.Grant, error) {
	a, err := send(n, ctx, func(ctx context.Context) answer[[]driver.Grant] {
		grants, err := n.inner.AcquireAll(ctx, reqs)
		for _, grant := range grants {
			if n.granted != nil {
				n.granted(grant)
			}
		}
		return answer[[]driver.Grant]{grants, err}
	})
	if err != nil {
		return nil, err
	}
	return a.value, a.err
}

func (n *network) Renew(ctx context.Context, grants []driver.Grant) []error {
	errs, err := send(n, ctx, func(ctx context.Context) []error { return n.inner.Renew(ctx, grants) })
	if err != nil {
		errs = make([]error, len(grants))
		for i := range errs {
			errs[i] = err
		}
	}
	return errs
}

func (n *network) Release(ctx context.Context, grant driver.Grant) error {
	released, err := send(n, ctx, func(ctx context.Context) error { return n.inner.Release(ctx, grant) })
	if err != nil {
		return err
	}
	return released
}

func (n *network) Downgrade(ctx context.Context, grant driver.Grant) error {
	downgraded, err := send(n, ctx, func(ctx context.Context) error { return n.inner.Downgrade(ctx, grant) })
	if err != nil {
		return err
	}
	return downgraded
}

// Watch loses wake-ups while the network is cut.
func (n *network) Watch(ctx context.Context, req driver.Request, wake func()) (func(), error) {
	return n.inner.Watch(ctx, req, func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		if !n.cut && n.random.Float64() >= n.rates.dropReply {
			wake()
		}
	})
}

func (n *network) List(ctx context.Context, prefix string) iter.Seq2[driver.Info, error] {
	return n.inner.List(ctx, prefix)
}

func (n *network) Break(ctx context.Context, name string, token uint64) error {
	return n.inner.Break(ctx, name, token)
}

func (n *network) Traits() driver.Traits {
	traits := n.inner.Traits()
	traits.Local = false
	return traits
}

func (n *network) Close() error { return nil }

var _ full = (*network)(nil)

func newNetwork(store full) *network {
	return &network{inner: store, random: rand.New(rand.NewPCG(1, 1))}
}

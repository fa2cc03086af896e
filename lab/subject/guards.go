package subject

import (
	"context"
	"errors"

	"github.com/dlock-go/dlock"
	"github.com/dlock-go/dlock/driver"
)

// guards are what keeps others out in the stories that are played on any store.
var guards = []Subject{
	{"none", Wrong, "no lock", func(context.Context, Config) (Locker, error) { return unguarded{}, nil }},
	{"local", Wrong, "a mutex in each process", func(context.Context, Config) (Locker, error) { return make(mutex, 1), nil }},
	{"dlock", Ours, "a lock for all processes", openGuard(false)},
	{"fenced", Ours, "the same lock, and the row checks its token", openGuard(true)},
}

// unguarded lets everybody in.
type unguarded struct{}

func (unguarded) Lock(context.Context) (Held, error) { return unguarded{}, nil }
func (unguarded) Believes() bool                     { return true }
func (unguarded) Token() uint64                      { return 0 }
func (unguarded) Unlock(context.Context) error       { return nil }

// mutex excludes the other goroutines of its process.
type mutex chan struct{}

// Lock implements Locker.
func (m mutex) Lock(ctx context.Context) (Held, error) {
	select {
	case m <- struct{}{}:
		return m, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (m mutex) Believes() bool { return true }
func (m mutex) Token() uint64  { return 0 }

func (m mutex) Unlock(context.Context) error {
	<-m
	return nil
}

// openGuard opens dlock. Without fenced, nobody learns of its tokens.
func openGuard(fenced bool) func(ctx context.Context, c Config) (Locker, error) {
	return func(ctx context.Context, c Config) (Locker, error) {
		store, err := OpenStore(ctx, c.URL)
		if err != nil {
			return nil, err
		}
		traits := store.Traits()
		ttl := min(max(c.TTL, traits.MinTTL), traits.LongestTTL())
		opts := []dlock.Option{dlock.WithTTL(ttl)}
		if c.Fixed {
			opts = []dlock.Option{dlock.WithFixedTTL(ttl)}
		}
		client := dlock.New(store, &dlock.Options{TTL: ttl, RequestTimeout: max(ttl, busyTimeout)})
		return &guard{dlockLocker{client, c, opts}, store, fenced}, nil
	}
}

// guard is dlock, with or without its token.
type guard struct {
	dlockLocker
	store  driver.Store
	fenced bool
}

// Lock implements Locker.
func (g *guard) Lock(ctx context.Context) (Held, error) {
	held, err := g.dlockLocker.Lock(ctx)
	if err != nil || g.fenced {
		return held, err
	}
	return tokenless{held}, nil
}

// Close releases the locks and closes the store.
func (g *guard) Close() error { return errors.Join(g.client.Close(), g.store.Close()) }

type tokenless struct{ Held }

func (tokenless) Token() uint64 { return 0 }
